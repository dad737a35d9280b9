"""Counts what tenants use of a gateway, and writes it to Redis and to metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from api import metrics
from api.http.protocol import OP, QUEUE
from api.http.request_log import BAD_REQUEST, CLIENT_CLOSED_REQUEST, SERVER_ERROR, TENANT
from api.tenants import Tenant
from shared.connection import RedisConnection
from shared.process.unexpected_replies import record_failing_call
from shared.usage_counts import TenantLabels, Usage, UsageCounts, UsageKey
from shared.usage_flusher import UsageFlusher

log = structlog.get_logger()

UNCOUNTED = (401, 403, CLIENT_CLOSED_REQUEST)
"""Statuses of requests that count for no tenant: its key gives no right to them, or the client has left."""


def count_answer(counts: UsageCounts, scope_state: Mapping[str, Any], status: int) -> None:
    """Counts an answer for the tenant of a request, given the `state` of its scope; not if it has no tenant yet."""
    tenant: Tenant | None = scope_state.get(TENANT)
    if tenant is None or status in UNCOUNTED:
        return
    row = counts.row(tenant.name, scope_state.get(QUEUE, ""), scope_state.get(OP, ""))
    if status < BAD_REQUEST:
        row.requests += 1
    elif status < SERVER_ERROR:
        row.refusals += 1
    else:
        row.failures += 1


class UsageRecorder:
    """Flushes the counts of a gateway until it ends.

    Args:
        connection: to the Redis that has the rows of all queues.
        process: the name of the gateway there.
        counts: those of the gateway.
    """

    def __init__(self, connection: RedisConnection, process: str, counts: UsageCounts) -> None:
        self._labels = TenantLabels()
        on_error = partial(record_failing_call, "usage is not written")
        self._flusher = UsageFlusher(connection, process, counts, self._count, on_error)
        self.run = self._flusher.run

    async def stop(self) -> None:
        """Writes what is left; gives up after a second."""
        if lost := await self._flusher.flush_at_end():
            log.warning("usage of tenants is lost: Redis does not answer", rows=lost)

    def _count(self, rows: Mapping[UsageKey, Usage]) -> None:
        for key, usage in rows.items():
            labels = key.queue, self._labels.label_of(key.tenant)
            metrics.TENANT_REQUESTS.labels(*labels).inc(usage.requests)
            metrics.TENANT_REFUSALS.labels(*labels).inc(usage.refusals)
            metrics.TENANT_FAILURES.labels(*labels).inc(usage.failures)
            metrics.TENANT_CACHED_TOKENS.labels(*labels).inc(usage.cached_tokens)
