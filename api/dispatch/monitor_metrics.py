"""What the monitor shows of a queue and of Redis: metrics, and a warning in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import nan

from api import metrics
from shared.eviction import EVICTION_WARNING, evicts
from shared.keys import LANES
from shared.messages import READY, STATES, Heartbeat
from shared.process.limited_log import LimitedLog
from shared.producer import QueueStats

limited_log = LimitedLog()

QUEUE_FIELDS = (
    (metrics.QUEUE_PENDING, "pending"),
    (metrics.QUEUE_INPUTS, "inputs"),
    (metrics.QUEUE_TOKENS, "tokens"),
    (metrics.QUEUE_BYTES, "bytes"),
    (metrics.DEAD_LETTERS, "dead_letters"),
    (metrics.OPEN_JOBS, "open_jobs"),
    (metrics.OWED_INPUTS, "owed_inputs"),
    (metrics.RESULT_BYTES, "result_bytes"),
)
"""The gauges that show the sum of a field of QueueStats over the shards."""

UNKNOWN_MEMORY = (
    "Redis does not say how much memory it uses: requests and jobs are accepted until it is full. Allow INFO, or watch "
    "its memory"
)


def warn_of_memory(stats: QueueStats, place: Mapping[str, object]) -> None:
    """Warns if the Redis at a place may remove keys, or does not say; once for all queues, whose monitors share it."""
    if not stats.memory_bytes:
        limited_log.write(logging.WARNING, UNKNOWN_MEMORY, None, **place)
    elif evicts(stats.eviction_policy):
        limited_log.write(logging.WARNING, EVICTION_WARNING, None, policy=stats.eviction_policy, **place)


def publish(queue: str, shards: Sequence[QueueStats], workers: Sequence[Heartbeat], tokens_per_s: float) -> None:
    """Sets the metrics of a queue: the sums of its shards, and the age of the oldest entry of all.

    Args:
        queue: its name.
        shards: the shards that answer.
        workers: of all of them.
        tokens_per_s: of all workers.
    """
    for index, lane in enumerate(LANES):
        metrics.QUEUE_ENTRIES.labels(queue, lane).set(sum(each.by_lane[index] for each in shards))
        metrics.QUEUE_AGE.labels(queue, lane).set(max(each.ages_ms[index] for each in shards) / 1000)
    for gauge, name in QUEUE_FIELDS:
        gauge.labels(queue).set(sum(getattr(each, name) for each in shards))
    metrics.FLEET_RATE.labels(queue).set(tokens_per_s)
    for state in STATES:
        metrics.WORKERS.labels(queue, state).set(sum(each.state == state for each in workers))


def publish_shard(queue: str, shard: str, stats: QueueStats) -> None:
    """Sets the metrics of one shard of a queue, and of its Redis."""
    metrics.SHARD_WORKERS.labels(queue, shard).set(sum(each.state == READY for each in stats.workers))
    metrics.REDIS_MEMORY.labels(shard).set(stats.memory_ratio)
    metrics.REDIS_MEMORY_BYTES.labels(shard).set(stats.memory_bytes)
    metrics.REDIS_PERSISTENCE_FAILED.labels(shard).set(not stats.persists)
    metrics.REDIS_EVICTS.labels(shard).set(evicts(stats.eviction_policy) if stats.eviction_policy else nan)


def clear_redis(shard: str) -> None:
    """Removes what a Redis last said of itself and of its workers."""
    for gauge in metrics.REDIS_GAUGES:
        gauge.remove_by_labels({"shard": shard})
