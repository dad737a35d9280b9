"""Calls that Redis refuses, as for want of a permission: each part that repeats them says so in the log, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio
import redis.asyncio
from structlog.testing import capture_logs

from api.dialects.request import InferenceRequest
from api.dispatch.charges import Charges
from api.dispatch.vector_cache import VectorCache
from api.tenants import Tenant
from gpuworker.consumer.in_progress_marker import InProgressMarker
from gpuworker.consumer.job_feeder import JobFeeder
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.settings import WorkerSettings
from shared.cache import CacheBound
from shared.connection import RedisConnection
from shared.messages import Entry, Ref
from shared.process.tasks import cancel_and_wait
from shared.process.unexpected_replies import UNEXPECTED_REPLIES, limited_log, record_unexpected_reply
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import Limits, Quota
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

RIGHTS = ("on", "nopass", "~*", "-@all", "+@connection", "+info")


@pytest_asyncio.fixture
async def refused() -> AsyncIterator[QueueConnections]:
    """A queue whose Redis refuses all scripts and keys to the user of these connections."""
    with Server() as server:
        async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw:
            await raw.execute_command("ACL", "SETUSER", "refused", *RIGHTS)
            queue = QueueConnections(
                QueueSettings(redis_url=f"redis://refused:any@127.0.0.1:{server.port}"),
                "q",
                "test",
                record_unexpected_reply,
            )
            yield queue
            await queue.close()
            await raw.execute_command("ACL", "LOG", "RESET")


def shard_state(queue: QueueConnections) -> ShardState:
    """Returns the state of the only shard of a worker that holds an entry, which runs."""
    shard = ShardState(WorkerState(WorkerSettings(model="null"), "w"), queue.keys, queue.connection("control"))
    in_flight = shard.worker_state.in_flight
    in_flight.add(Entry(Ref(0, b"1-0", 1, 1), 1, "r1", 0, 10**12, "", "", b""), shard.number, ("text",))
    in_flight.runs.begin([in_flight.entries()[0].slot])
    return shard


async def charge_forever(connection: RedisConnection, queue: QueueConnections) -> None:
    """Charges a tenant again and again."""
    quota = Charges(connection, queue.keys, lambda tenant, _: Limits(tenant.quota, 0.0))
    charging = asyncio.create_task(quota.run())
    try:
        while True:
            tenant = Tenant("a", Quota(daily_tokens=100))
            await quota.charge(InferenceRequest(("a",), 1_000, tenant=tenant), 2, may_refuse=True)
    finally:
        await cancel_and_wait([charging])


async def look_up_forever(connection: RedisConnection, queue: QueueConnections) -> None:
    """Looks for a vector again and again."""
    cache = VectorCache(connection, queue.keys, CacheBound(1_000_000, 1_000))
    running = asyncio.create_task(cache.run())
    try:
        while True:
            assert await cache.find([b"key"]) == [None]
            await asyncio.sleep(0)
    finally:
        await cancel_and_wait([running])


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("feeder", "jobs are not fed"),
        ("marker", "what runs is not recorded"),
        ("charges", "tenants are not charged"),
        ("cache", "the cache is out of reach"),
    ],
)
async def test_a_call_that_is_refused_for_ever_is_logged_once(refused: QueueConnections, part: str, line: str) -> None:
    """At level error, with the reply; and each is counted. An outage is no such call."""
    parts: dict[str, Any] = {
        "feeder": lambda: JobFeeder(shard_state(refused)).run(),
        "marker": lambda: InProgressMarker(shard_state(refused), refused.connection("begun")).run(),
        "charges": lambda: charge_forever(refused.connection("charge"), refused),
        "cache": lambda: look_up_forever(refused.connection("cache"), refused),
    }
    before = cast("float", UNEXPECTED_REPLIES._value.get())
    limited_log.flush()
    with capture_logs() as logs:
        task = asyncio.create_task(parts[part]())
        try:
            await wait_until(lambda: UNEXPECTED_REPLIES._value.get() >= before + 2, "it is refused twice")
        finally:
            await cancel_and_wait([task])
    errors = [each for each in logs if each["log_level"] == "error" and "NOPERM" in str(each)]
    assert [(each["event"], "NOPERM" in each["reason"]) for each in errors] == [(line, True)]
