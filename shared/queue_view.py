"""The state of a queue: that of one Redis, or the sum over its shards; and as a dictionary for JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from shared.activity import ActivitySummary, add_up, summarize
from shared.eviction import evicts
from shared.keys import LANES
from shared.messages import Heartbeat
from shared.producer import QueueStats

SILENT_S = 3.0
"""A worker that sent no heartbeat for this time, three times the usual interval, may be gone: it is shown as silent."""


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
        dead_letters=sum(each.stats.dead_letters for each in queues),
        open_jobs=sum(each.stats.open_jobs for each in queues),
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


def queue_as_dict(queue: QueueView) -> dict[str, Any]:
    """Returns the state for JSON. Entries are stream messages; inputs, tokens and bytes are sums over all entries."""
    stats = queue.stats
    shards = [_shard_as_dict(number, each) for number, each in enumerate(queue.shards)]
    return {
        "queue": queue.name,
        **_numbers(queue),
        "workers": [
            {
                "worker": beat.worker,
                "host": beat.host,
                "pid": beat.pid,
                "device": beat.device,
                "gpu": beat.gpu,
                "gpu_memory_bytes": beat.gpu_memory_bytes,
                "gpu_used_bytes": beat.gpu_used_bytes,
                "memory_bytes": beat.memory_bytes,
                "model": beat.model,
                "revision": beat.revision,
                "dim": beat.dim,
                "ops": list(beat.ops),
                "state": beat.state,
                "failing": beat.load_error or beat.failing,
                "tokens_per_s": beat.tokens_per_s,
                "batch_size": _rounded(summarize([beat.activity]).batch_size),
                "max_batch_size": beat.max_batch_size,
                "holds_entries": beat.holds,
                "begun_entries": beat.begun,
                "up_s": max(0, stats.now_ms - beat.started_ms) / 1000,
                "silent_s": queue.silent_s(beat),
            }
            for beat in sorted(stats.workers, key=lambda beat: beat.worker)
        ],
        **({"shards": shards} if shards else {}),
    }


def _shard_as_dict(number: int, shard: ShardView) -> dict[str, Any]:
    numbers = {} if shard.queue is None else _numbers(shard.queue) | {"workers": len(shard.queue.stats.workers)}
    return {"shard": number, "redis": shard.place, "error": shard.problem or None, **numbers}


def _numbers(queue: QueueView) -> dict[str, Any]:
    stats = queue.stats
    return {
        "waiting_entries": stats.waiting,
        "in_flight_entries": stats.pending,
        "entries_by_lane": dict(zip(LANES, stats.by_lane, strict=True)),
        "inputs": stats.inputs,
        "tokens": stats.tokens,
        "bytes": stats.bytes,
        "oldest_age_ms": stats.oldest_age_ms,
        "oldest_age_ms_by_lane": {
            lane: None if oldest is None else age_ms
            for lane, oldest, age_ms in zip(LANES, stats.oldest_by_lane, stats.ages_ms, strict=True)
        },
        "open_jobs": stats.open_jobs,
        "dead_letters": stats.dead_letters,
        "redis_eviction_policy": stats.eviction_policy or None,
        **{name: _rounded(value) for name, value in asdict(queue.activity).items()},
    }


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if value else value
