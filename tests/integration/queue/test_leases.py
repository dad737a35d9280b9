"""Leases of GPUs in a real Redis: one holder for each slot, growing fences, and turns in the order of requests."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
import redis.asyncio

from shared import gpu_leases
from shared.connection import RedisConnection
from shared.gpu_leases import Lease
from shared.keys import PoolKeys
from shared.queue_connections import QueueConnections
from tests.waiting import wait_until

pytestmark = pytest.mark.redis
USER = "worker"

TTL_MS = 60_000
WAITER_TTL_MS = 60_000


@pytest.fixture
def pool(queue_name: str) -> PoolKeys:
    """A pool for one test."""
    return PoolKeys(queue_name)


@pytest_asyncio.fixture
async def connection(queue: QueueConnections) -> RedisConnection:
    """A connection."""
    return queue.connection("lease")


async def acquire(
    connection: RedisConnection, pool: PoolKeys, owner: str, *slots: str, ttl_ms: int = TTL_MS, waiter_ttl_ms: int = 0
) -> Lease:
    """Acquires a lease, which must be free."""
    lease = await gpu_leases.acquire(connection, pool, slots or ("0.0",), owner, ttl_ms, waiter_ttl_ms=waiter_ttl_ms)
    assert isinstance(lease, Lease)
    return lease


async def fail_to_acquire(
    connection: RedisConnection, pool: PoolKeys, owner: str, *slots: str, waiter_ttl_ms: int = 0
) -> int:
    """Requests a lease that must not be free; returns after how many ms it expires at the latest."""
    answer = await gpu_leases.acquire(connection, pool, slots or ("0.0",), owner, TTL_MS, waiter_ttl_ms=waiter_ttl_ms)
    assert isinstance(answer, int)
    return answer


async def test_each_slot_has_one_holder(connection: RedisConnection, pool: PoolKeys) -> None:
    """Each request gets the first free slot; if all are taken, the time after which one expires at the latest."""
    slots = ("0.0", "1.0")
    first, second = await acquire(connection, pool, "a", *slots), await acquire(connection, pool, "b", *slots)
    assert (first.slot, second.slot) == slots
    assert second.fence > first.fence
    assert 0 < await fail_to_acquire(connection, pool, "c", *slots) <= TTL_MS
    assert await gpu_leases.release(connection, pool, slots, "a")
    assert (await acquire(connection, pool, "c", *slots)).slot == "0.0"


async def test_a_reply_that_was_lost_costs_nothing(connection: RedisConnection, pool: PoolKeys) -> None:
    """A holder that repeats its request gets the same slot under the same fence."""
    assert await acquire(connection, pool, "a", "0.0", "1.0") == await acquire(connection, pool, "a", "1.0", "0.0")


async def test_only_the_holder_renews_and_releases(connection: RedisConnection, pool: PoolKeys) -> None:
    """Neither another owner nor the same owner under an old fence renews or releases a lease."""
    old = await acquire(connection, pool, "a")
    assert await gpu_leases.release(connection, pool, ["0.0"], "a") == 1
    lease = await acquire(connection, pool, "a")
    for other, owner in ((old, "a"), (lease, "b"), (Lease("0.0", lease.fence + 1), "a")):
        assert not await gpu_leases.renew(connection, pool, other, owner, TTL_MS)
    assert await gpu_leases.release(connection, pool, ["0.0"], "b") == 0
    assert await gpu_leases.renew(connection, pool, lease, "a", TTL_MS)


async def test_a_release_gives_back_every_slot_of_its_owner(connection: RedisConnection, pool: PoolKeys) -> None:
    """A release also gives up the owner's place among the waiters, so that the next need not wait for a timeout."""
    await acquire(connection, pool, "a", "0.0")
    await acquire(connection, pool, "a", "1.0")
    assert await gpu_leases.release(connection, pool, ["0.0", "1.0"], "a") == 2
    await acquire(connection, pool, "b", waiter_ttl_ms=TTL_MS)
    for waiting in ("c", "d"):
        await fail_to_acquire(connection, pool, waiting, waiter_ttl_ms=TTL_MS)
        await asyncio.sleep(0.002)
    assert await gpu_leases.release(connection, pool, ["0.0"], "c") == 0
    assert await gpu_leases.release(connection, pool, ["0.0"], "b") == 1
    await acquire(connection, pool, "d", waiter_ttl_ms=TTL_MS)


async def test_a_lease_that_is_not_renewed_runs_out(
    connection: RedisConnection, pool: PoolKeys, raw: redis.asyncio.Redis
) -> None:
    """A lease without renewals expires, and one with renewals does not."""
    kept = await acquire(connection, pool, "b", "1.0", ttl_ms=1_000)
    assert await gpu_leases.renew(connection, pool, kept, "b", TTL_MS)
    lost = await acquire(connection, pool, "a", "0.0", ttl_ms=1_000)

    async def has_run_out() -> bool:
        return not await raw.exists(pool.slot("0.0"))

    await wait_until(has_run_out, "the lease without renewals has run out")
    assert await gpu_leases.renew(connection, pool, kept, "b", TTL_MS)
    assert not await gpu_leases.renew(connection, pool, lost, "a", TTL_MS)
    assert (await acquire(connection, pool, "c", "0.0")).fence > lost.fence


async def test_fences_grow_even_when_redis_has_lost_them(
    connection: RedisConnection, pool: PoolKeys, raw: redis.asyncio.Redis
) -> None:
    """Fences grow even after Redis has lost the last one, so that writes under an old fence are recognized."""
    fences = []
    for _ in range(5):
        lease = await acquire(connection, pool, "a")
        fences.append(lease.fence)
        await raw.delete(pool.fence, pool.slot("0.0"))
    assert fences == sorted(set(fences))


async def test_turns_follow_the_order_of_requests(
    connection: RedisConnection, pool: PoolKeys, raw: redis.asyncio.Redis
) -> None:
    """A holder that requests the slot again at once comes last, and each release wakes the next waiter."""
    holder = "a"
    await acquire(connection, pool, holder, waiter_ttl_ms=WAITER_TTL_MS)
    for waiting in ("b", "c", "d"):
        await fail_to_acquire(connection, pool, waiting, waiter_ttl_ms=WAITER_TTL_MS)
        await asyncio.sleep(0.002)  # the order is that of milliseconds
    for following in ("b", "c", "d", "a"):
        await gpu_leases.release(connection, pool, ["0.0"], holder)
        await fail_to_acquire(connection, pool, holder, waiter_ttl_ms=WAITER_TTL_MS)
        assert await raw.llen(pool.wake(following)) == 1, "it is woken at once"
        await gpu_leases.wait(connection, pool, following, 1.5)
        await acquire(connection, pool, following, waiter_ttl_ms=WAITER_TTL_MS)
        holder = following


async def test_a_dead_waiter_does_not_block_others(connection: RedisConnection, pool: PoolKeys) -> None:
    """A waiter that has not repeated its request for a while no longer counts."""
    await acquire(connection, pool, "a", waiter_ttl_ms=TTL_MS)
    await fail_to_acquire(connection, pool, "dead", waiter_ttl_ms=TTL_MS)
    await asyncio.sleep(0.01)  # requests in the same ms are ordered by name
    await gpu_leases.release(connection, pool, ["0.0"], "a")
    await fail_to_acquire(connection, pool, "b", waiter_ttl_ms=TTL_MS)
    await asyncio.sleep(0.25)
    assert await acquire(connection, pool, "b", waiter_ttl_ms=200)


async def test_nothing_stays_behind(connection: RedisConnection, pool: PoolKeys, raw: redis.asyncio.Redis) -> None:
    """Of a pool that is no longer used only the fence remains."""
    await acquire(connection, pool, "a", waiter_ttl_ms=WAITER_TTL_MS)
    await fail_to_acquire(connection, pool, "b", waiter_ttl_ms=WAITER_TTL_MS)
    await gpu_leases.release(connection, pool, ["0.0"], "a")
    await acquire(connection, pool, "b", waiter_ttl_ms=WAITER_TTL_MS)
    await gpu_leases.wait(connection, pool, "b", 0.1)
    await gpu_leases.release(connection, pool, ["0.0"], "b")
    assert [key.decode() async for key in raw.scan_iter(match=pool.prefix.replace("{", "\\{") + "*")] == [pool.fence]
    await raw.delete(pool.fence)
