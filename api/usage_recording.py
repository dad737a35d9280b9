"""Counts what tenants use of a gateway, and writes it to Redis and to metrics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from api import metrics
from api.http.protocol import OP, QUEUE
from api.http.request_log import BAD_REQUEST, CLIENT_CLOSED_REQUEST, SERVER_ERROR, TENANT
from api.state import State
from api.tenants import Tenant
from shared.process.tasks import cancel_and_wait, run_forever
from shared.process.unexpected_replies import record_failing_call
from shared.usage_counts import Usage, UsageCounts
from shared.usage_flusher import UsageFlusher

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


@asynccontextmanager
async def written_usage(state: State) -> AsyncIterator[None]:
    """Within the block, what a gateway counts is written every few seconds, and at its end."""
    queues, name = state.queues, f"gateway:{secrets.token_hex(8)}"
    on_error = partial(record_failing_call, "usage is not written")
    flusher = UsageFlusher(lambda: queues.usage_writer, name, state.usage, _count_in_metrics, on_error)
    flushing = asyncio.create_task(run_forever(flusher.run))
    try:
        yield
    finally:
        await cancel_and_wait([flushing])
        await flusher.stop()


def _count_in_metrics(labels: tuple[str, str], usage: Usage) -> None:
    metrics.TENANT_REQUESTS.labels(*labels).inc(usage.requests)
    metrics.TENANT_REFUSALS.labels(*labels).inc(usage.refusals)
    metrics.TENANT_FAILURES.labels(*labels).inc(usage.failures)
    metrics.TENANT_CACHED_TOKENS.labels(*labels).inc(usage.cached_tokens)
