"""Charges for cached vectors, and refunds: none is lost because many come at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from api import metrics
from api.dialects.request import InferenceRequest
from api.dispatch.charges import Charges
from api.tenants import Tenant
from redbatch.up.local_redis import free_port
from shared import charges
from shared.charges import Charge
from shared.connection import RedisConnection
from shared.errors import RateLimitedError
from shared.keys import Keys
from shared.process.tasks import cancel_and_wait
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import NO_WAIT, Limits, Quota
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything]

DAY_MS = 86_400_000
StartQuota = Callable[[QueueConnections], Charges]


@pytest_asyncio.fixture
async def start_quota() -> AsyncIterator[StartQuota]:
    """Starts to charge for what was cached, until the test has ended."""
    tasks = []

    def start(queue: QueueConnections) -> Charges:
        connection = queue.connection("charge")
        quota = Charges(connection, queue.keys, lambda tenant, _: Limits(tenant.quota, 0.0))
        tasks.append(asyncio.create_task(quota.run()))
        return quota

    yield start
    await cancel_and_wait(tasks)


async def charge(quota: Charges, tenant: Tenant) -> bool:
    """Charges two tokens; returns whether the quota allowed them."""
    try:
        await quota.charge(InferenceRequest(("a",), 1_000, tenant=tenant), 2, may_refuse=True)
    except RateLimitedError:
        return False
    return True


async def num_used(connection: RedisConnection, keys: Keys, tenant: str) -> float:
    """Returns the tokens that a tenant has used of its day."""
    return float((await connection.call("HGET", keys.tenants, tenant) or b"0 0 0 0 0").split()[4])


async def test_concurrent_answers_are_all_charged(queue: QueueConnections, start_quota: StartQuota) -> None:
    """Of 1,000 answers at once, each that the quota allows is paid: at once, or after an answer that did not wait."""
    quota, connection = start_quota(queue), queue.connection("test")
    before, tenant = metrics.UNCHARGED_TOKENS._value.get(), Tenant("a", Quota(daily_tokens=1_000))
    num_allowed = sum(await asyncio.gather(*(charge(quota, tenant) for _ in range(1_000))))
    assert num_allowed >= 500

    async def are_charged() -> bool:
        return await num_used(connection, queue.keys, "a") == 2 * num_allowed

    await wait_until(are_charged, "what was allowed is charged")
    assert metrics.UNCHARGED_TOKENS._value.get() == before


async def test_charges_of_one_call_add_up(queue: QueueConnections) -> None:
    """Each charge counts for the next of its tenant: the quota refuses the rest, or is overdrawn."""
    connection = queue.connection("test")
    small, large = Limits(Quota(daily_tokens=9), 0.0), Limits(Quota(daily_tokens=100), 0.0)
    batch = [
        *(Charge(tenant, limits, 2, True) for _ in range(6) for tenant, limits in (("a", small), ("b", large))),
        Charge("a", small, 2, False),
        Charge("a", small, 1, True),
    ]
    waits = await charges.charge(connection, queue.keys, batch)
    assert [each == NO_WAIT for each in waits[0:12:2]] == [True] * 4 + [False] * 2
    assert [*waits[1:12:2], waits[12]] == [NO_WAIT] * 7
    assert (waits[13].ms > 0, waits[13].limit) == (True, "day")
    assert [await num_used(connection, queue.keys, tenant) for tenant in "ab"] == [10, 12]


async def test_charges_that_are_lost_are_counted(start_quota: StartQuota) -> None:
    """Without Redis, cached vectors are free, their tokens are counted, and later charges are tried again."""
    settings = QueueSettings(redis_url=f"redis://127.0.0.1:{free_port()}/0")
    queue = QueueConnections(settings, "none", "test")
    quota, tenant = start_quota(queue), Tenant("a", Quota(daily_tokens=1))
    for number in (1, 2):
        before = metrics.UNCHARGED_TOKENS._value.get()
        assert all(await asyncio.gather(*(charge(quota, tenant) for _ in range(10))))
        assert metrics.UNCHARGED_TOKENS._value.get() == before + 20, number
    await queue.close()


@pytest.mark.parametrize(("age_ms", "used"), [(0, 6), (DAY_MS, 14)], ids=["of today", "of the day before"])
async def test_tokens_that_come_back_count_for_their_day(queue: QueueConnections, age_ms: int, used: int) -> None:
    """They fill the bucket again, but what a new day has does not grow by what was used on the day before."""
    connection, limits = queue.connection("test"), Limits(Quota(0.001, 10, 100), 0.0)
    batch = [Charge("a", limits, 10, True), Charge("a", limits, -4, False, age_ms), Charge("a", limits, 4, True)]
    batch.append(Charge("a", limits, -4, False, age_ms))
    assert await charges.charge(connection, queue.keys, batch) == [NO_WAIT] * 4
    assert await num_used(connection, queue.keys, "a") == used


async def test_a_refund_reaches_redis(
    queue: QueueConnections, start_quota: StartQuota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client waits for it, and it charges nothing that Redis never took; without tokens there is none."""
    monkeypatch.setattr("api.dispatch.charges.CHARGE_TIMEOUT_S", 20.0)  # the sixth must not be allowed as too late
    quota, connection, tenant = start_quota(queue), queue.connection("test"), Tenant("a", Quota(0.001, 10))
    before = metrics.UNCHARGED_TOKENS._value.get()
    assert [await charge(quota, tenant) for _ in range(6)] == [True] * 5 + [False]
    quota.refund(tenant, 0)
    quota.refund(tenant, 2)

    async def is_back() -> bool:
        return float((await connection.call("HGET", queue.keys.tenants, "a")).split()[0]) >= 2

    await wait_until(is_back, "the tokens are back")
    assert metrics.UNCHARGED_TOKENS._value.get() == before
