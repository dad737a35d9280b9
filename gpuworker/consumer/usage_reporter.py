"""Writes what tenants have used of a worker to Redis, and counts it in metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import WorkerState
from shared.connection import RedisConnection
from shared.process.unexpected_replies import record_failing_call
from shared.usage_counts import TenantLabels, Usage, UsageKey
from shared.usage_flusher import UsageFlusher

log = structlog.get_logger()


class UsageReporter:
    """Flushes the counts of a worker until it ends.

    Args:
        worker_state: of the worker, which counts.
        connection: to the Redis that has the rows of all queues.
        process: the name of the worker there, which no earlier run of it used.
    """

    def __init__(self, worker_state: WorkerState, connection: RedisConnection, process: str) -> None:
        self._labels = TenantLabels()
        on_error = partial(record_failing_call, "usage is not written")
        self._flusher = UsageFlusher(connection, process, worker_state.usage, self._count, on_error)
        self.run = self._flusher.run

    async def stop(self) -> None:
        """Writes what is left; gives up after a second."""
        if lost := await self._flusher.flush_at_end():
            log.warning("usage of tenants is lost: Redis does not answer", rows=lost)

    def _count(self, rows: Mapping[UsageKey, Usage]) -> None:
        for key, usage in rows.items():
            labels = key.queue, self._labels.label_of(key.tenant)
            metrics.TENANT_INPUTS.labels(*labels).inc(usage.inputs)
            metrics.TENANT_TOKENS.labels(*labels).inc(usage.tokens)
            metrics.TENANT_DEVICE.labels(*labels).inc(usage.device_ms / 1000)
