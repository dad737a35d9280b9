"""Leases of GPUs in a real Redis: one holder for each slot, fences that grow, and turns in the order of asking."""

from __future__ import annotations

import asyncio
import time

import pytest
import pytest_asyncio
import redis.asyncio

from shared import leases
from shared.keys import Pool
from shared.leases import Lease
from shared.connection import Link, Queue

pytestmark = pytest.mark.redis
PLAYS = "worker"

TTL_MS = 60_000
PATIENCE_MS = 5_000


@pytest.fixture
def pool(queue_name: str) -> Pool:
    """A pool of the test's own."""
    return Pool(queue_name)


@pytest_asyncio.fixture
async def link(queue: Queue) -> Link:
    """A connection."""
    return queue.link("lease")


async def taken(link: Link, pool: Pool, owner: str, *slots: str, ttl_ms: int = TTL_MS, patience_ms: int = 0) -> Lease:
    """Takes a lease, which must be free."""
    lease = await leases.take(link, pool, slots or ("0.0",), owner, ttl_ms, patience_ms=patience_ms)
    assert isinstance(lease, Lease)
    return lease


async def refused(link: Link, pool: Pool, owner: str, *slots: str, patience_ms: int = 0) -> int:
    """Asks for a lease that must not be free; returns in how many ms it is at the latest."""
    answer = await leases.take(link, pool, slots or ("0.0",), owner, TTL_MS, patience_ms=patience_ms)
    assert isinstance(answer, int)
    return answer


async def test_each_slot_has_one_holder(link: Link, pool: Pool) -> None:
    """Whoever comes first has the first that is free; when all are taken, the next is told how long at most."""
    slots = ("0.0", "1.0")
    first, second = await taken(link, pool, "a", *slots), await taken(link, pool, "b", *slots)
    assert (first.slot, second.slot) == slots
    assert second.fence > first.fence
    assert 0 < await refused(link, pool, "c", *slots) <= TTL_MS
    assert await leases.release(link, pool, slots, "a")
    assert (await taken(link, pool, "c", *slots)).slot == "0.0"


async def test_a_reply_that_was_lost_costs_nothing(link: Link, pool: Pool) -> None:
    """The holder that asks again has the same slot under the same fence."""
    assert await taken(link, pool, "a", "0.0", "1.0") == await taken(link, pool, "a", "1.0", "0.0")


async def test_only_the_holder_renews_and_releases(link: Link, pool: Pool) -> None:
    """Neither another, nor the same under an old fence."""
    old = await taken(link, pool, "a")
    assert await leases.release(link, pool, ["0.0"], "a") == 1
    lease = await taken(link, pool, "a")
    for other, owner in ((old, "a"), (lease, "b"), (Lease("0.0", lease.fence + 1), "a")):
        assert not await leases.renew(link, pool, other, owner, TTL_MS)
    assert await leases.release(link, pool, ["0.0"], "b") == 0
    assert await leases.renew(link, pool, lease, "a", TTL_MS)


async def test_whoever_leaves_gives_back_what_it_does_not_know_of(link: Link, pool: Pool) -> None:
    """All its slots, and its place among those who wait: the next need not wait until it is taken for dead."""
    await taken(link, pool, "a", "0.0")
    await taken(link, pool, "a", "1.0")
    assert await leases.release(link, pool, ["0.0", "1.0"], "a") == 2
    await taken(link, pool, "b", patience_ms=TTL_MS)
    for waiting in ("c", "d"):
        await refused(link, pool, waiting, patience_ms=TTL_MS)
        await asyncio.sleep(0.002)
    assert await leases.release(link, pool, ["0.0"], "c") == 0
    assert await leases.release(link, pool, ["0.0"], "b") == 1
    await taken(link, pool, "d", patience_ms=TTL_MS)


async def test_a_lease_that_is_not_renewed_runs_out(link: Link, pool: Pool) -> None:
    """And one that is renewed does not."""
    lost, kept = await taken(link, pool, "a", "0.0", ttl_ms=200), await taken(link, pool, "b", "1.0", ttl_ms=200)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert await leases.renew(link, pool, kept, "b", 200)
        await asyncio.sleep(0.05)
    assert not await leases.renew(link, pool, lost, "a", 200)
    assert (await taken(link, pool, "c", "0.0")).fence > lost.fence


async def test_fences_grow_even_when_redis_has_lost_them(link: Link, pool: Pool, raw: redis.asyncio.Redis) -> None:
    """What was written under an old one can be told from what was written since."""
    fences = []
    for _ in range(5):
        lease = await taken(link, pool, "a")
        fences.append(lease.fence)
        await raw.delete(pool.fence, pool.slot("0.0"))
    assert fences == sorted(set(fences))


async def test_turns_are_had_in_the_order_of_asking(link: Link, pool: Pool) -> None:
    """The holder that asks again at once comes after those who wait, and each of them is woken by the one before."""
    holder = "a"
    await taken(link, pool, holder, patience_ms=PATIENCE_MS)
    for waiting in ("b", "c", "d"):
        await refused(link, pool, waiting, patience_ms=PATIENCE_MS)
        await asyncio.sleep(0.002)  # the order is that of milliseconds
    for following in ("b", "c", "d", "a"):
        await leases.release(link, pool, ["0.0"], holder)
        await refused(link, pool, holder, patience_ms=PATIENCE_MS)
        began = time.monotonic()
        await leases.wait(link, pool, following, 1.5)
        assert time.monotonic() - began < 1
        await taken(link, pool, following, patience_ms=PATIENCE_MS)
        holder = following


async def test_who_has_died_waiting_holds_nobody_up(link: Link, pool: Pool) -> None:
    """Whoever has not asked for a while does not count as waiting any more."""
    await taken(link, pool, "a", patience_ms=500)
    await refused(link, pool, "dead", patience_ms=500)
    await asyncio.sleep(0.01)  # whoever asks in the same ms goes by name
    await leases.release(link, pool, ["0.0"], "a")
    await refused(link, pool, "b", patience_ms=500)
    await asyncio.sleep(0.55)
    assert await taken(link, pool, "b", patience_ms=500)


async def test_nothing_stays_behind(link: Link, pool: Pool, raw: redis.asyncio.Redis) -> None:
    """Of a pool that nobody uses any more only the fence is left."""
    await taken(link, pool, "a", patience_ms=PATIENCE_MS)
    await refused(link, pool, "b", patience_ms=PATIENCE_MS)
    await leases.release(link, pool, ["0.0"], "a")
    await taken(link, pool, "b", patience_ms=PATIENCE_MS)
    await leases.wait(link, pool, "b", 0.1)
    await leases.release(link, pool, ["0.0"], "b")
    assert [key.decode() async for key in raw.scan_iter(match=pool.prefix.replace("{", "\\{") + "*")] == [pool.fence]
    await raw.delete(pool.fence)
