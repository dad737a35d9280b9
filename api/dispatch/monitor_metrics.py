"""What the monitor shows of a queue and of Redis: metrics, and a warning in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import nan

from api import metrics
from shared.eviction import EVICTION_WARNING, evicts
from shared.keys import LANES
from shared.messages import STATES, Heartbeat
from shared.process.limited_log import LimitedLog
from shared.producer import QueueStats

limited_log = LimitedLog()

UNKNOWN_MEMORY = (
    "Redis does not say how much memory it uses: requests and jobs are accepted until it is full. Allow INFO, or watch "
    "its memory"
)


def warn_of_memory(stats: QueueStats) -> None:
    """Warns if Redis may remove keys, or does not say; once for all queues, whose monitors share the Redis."""
    if not stats.memory_bytes:
        limited_log.write(logging.WARNING, UNKNOWN_MEMORY)
    elif evicts(stats.eviction_policy):
        limited_log.write(logging.WARNING, EVICTION_WARNING, policy=stats.eviction_policy)


def publish(queue: str, stats: QueueStats, workers: Sequence[Heartbeat]) -> None:
    """Sets the metrics of a queue, and those of Redis."""
    for lane, entries, age_ms in zip(LANES, stats.by_lane, stats.ages_ms, strict=True):
        metrics.QUEUE_ENTRIES.labels(queue, lane).set(entries)
        metrics.QUEUE_AGE.labels(queue, lane).set(age_ms / 1000)
    metrics.QUEUE_PENDING.labels(queue).set(stats.pending)
    metrics.QUEUE_INPUTS.labels(queue).set(stats.inputs)
    metrics.QUEUE_TOKENS.labels(queue).set(stats.tokens)
    metrics.QUEUE_BYTES.labels(queue).set(stats.bytes)
    metrics.DEAD_LETTERS.labels(queue).set(stats.dead_letters)
    metrics.OPEN_JOBS.labels(queue).set(stats.open_jobs)
    metrics.OWED_INPUTS.labels(queue).set(stats.owed_inputs)
    metrics.RESULT_BYTES.labels(queue).set(stats.result_bytes)
    metrics.REDIS_MEMORY.set(stats.memory_ratio)
    metrics.REDIS_MEMORY_BYTES.set(stats.memory_bytes)
    metrics.REDIS_PERSISTENCE_FAILED.set(not stats.persists)
    metrics.REDIS_EVICTS.set(evicts(stats.eviction_policy) if stats.eviction_policy else nan)
    for state in STATES:
        metrics.WORKERS.labels(queue, state).set(sum(each.state == state for each in workers))


def clear(queue: str) -> None:
    """Removes the metrics of a queue, and sets those of Redis, which cannot be removed, to not a number."""
    metrics.remove_queue(queue)
    for gauge in metrics.REDIS_GAUGES:
        gauge.set(nan)
