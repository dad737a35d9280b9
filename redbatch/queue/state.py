"""The state of a queue: that of one Redis, or the sum over its shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from shared.activity import ActivitySummary, add_up, summarize
from shared.eviction import evicts
from shared.messages import Heartbeat
from shared.producer import QueueStats


class QueueView(NamedTuple):
    """A queue and its state, with the time of the last heartbeat of each worker (Redis' clock, ms).

    With shards, this is the sum of those that answer, and `shards` has each.
    """

    name: str
    stats: QueueStats
    heartbeats_ms: Mapping[str, int] = MappingProxyType({})
    shards: tuple[ShardView, ...] = ()

    @property
    def activity(self) -> ActivitySummary:
        """What its live workers did in the last seconds."""
        return summarize([beat.activity for beat in self.stats.workers])

    def silent_s(self, beat: Heartbeat) -> float:
        """For how long a worker has sent no heartbeat."""
        return max(0, self.stats.now_ms - self.heartbeats_ms.get(beat.worker, self.stats.now_ms)) / 1000


class ShardView(NamedTuple):
    """A shard: its URL without the password, and its state; or the `problem` why its Redis does not answer."""

    place: str
    queue: QueueView | None
    problem: str = ""


def merge_shards(name: str, shards: Sequence[ShardView]) -> QueueView:
    """Returns a queue with these shards, at least one of which answers. Times are on the clock of the first of those.

    A worker that serves several shards is there once, with the sums of what it reports to each.
    """
    queues = [each.queue for each in shards if each.queue is not None]
    first = queues[0].stats
    beats: dict[str, list[tuple[float, int, Heartbeat]]] = defaultdict(list)
    for queue in queues:
        for beat in queue.stats.workers:
            started_ms = beat.started_ms + first.now_ms - queue.stats.now_ms
            beats[beat.worker].append((queue.silent_s(beat), started_ms, beat))
    silent_s = {worker: min(silent_s for silent_s, _, _ in each) for worker, each in beats.items()}
    heartbeats_ms = {worker: first.now_ms - round(1000 * each) for worker, each in silent_s.items()}
    stats = replace(
        first,
        inputs=sum(each.stats.inputs for each in queues),
        tokens=sum(each.stats.tokens for each in queues),
        bytes=sum(each.stats.bytes for each in queues),
        pending=sum(each.stats.pending for each in queues),
        by_lane=tuple(map(sum, zip(*(each.stats.by_lane for each in queues), strict=True))),
        oldest_by_lane=tuple(_oldest(queues, lane) for lane in range(len(first.by_lane))),
        workers=tuple(_merge_worker(each) for each in beats.values()),
        eviction_policy=max((each.stats.eviction_policy for each in queues), key=evicts),
    )
    return QueueView(name, stats, heartbeats_ms, tuple(shards))


def _oldest(queues: Sequence[QueueView], lane: int) -> int | None:
    ages_ms = [each.stats.ages_ms[lane] for each in queues if each.stats.oldest_by_lane[lane] is not None]
    return queues[0].stats.now_ms - max(ages_ms) if ages_ms else None


def _merge_worker(reports: Sequence[tuple[float, int, Heartbeat]]) -> Heartbeat:
    """Returns the latest of the heartbeats of a worker, with the sums over its shards."""
    _, started_ms, latest = min(reports, key=lambda each: each[0])
    beats = [beat for _, _, beat in reports]
    return replace(
        latest,
        started_ms=started_ms,
        tokens_per_s=sum(each.tokens_per_s for each in beats),
        holds=sum(each.holds for each in beats),
        begun=sum(each.begun for each in beats),
        activity=add_up([each.activity for each in beats]),
    )
