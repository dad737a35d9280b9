"""Leases of GPUs: which worker uses which slot of a pool, for how long, and which worker is next.

A lease is advisory: a GPU cannot check a fence. docs/leases.md lists the guarantees and their limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared import scripts
from shared.connection import RedisConnection
from shared.keys import PoolKeys

WAKE_TTL_MS = 10_000


class Lease(NamedTuple):
    """A slot by its name, and the fence under which it is held: larger than the fences of all previous holders."""

    slot: str
    fence: int


async def acquire(
    connection: RedisConnection,
    pool: PoolKeys,
    slots: Sequence[str],
    owner: str,
    ttl_ms: int,
    *,
    waiter_ttl_ms: int = 0,
) -> Lease | int:
    """Requests one of the given slots, and takes the first that is free.

    Args:
        connection: a connection.
        pool: the pool of GPUs.
        slots: their names, in order of preference.
        owner: name of the holder, unique to a process.
        ttl_ms: lifetime of the lease.
        waiter_ttl_ms: slots go to the first waiter; one that has not repeated its request for this time no longer
            counts. 0: slots go to the next request.

    Returns:
        The lease; or the time in ms after which one of the leases expires at the latest.
    """
    keys = [pool.fence, *pool.waiting(slots), *map(pool.slot, slots)]
    index, value = await connection.run(scripts.LEASE_ACQUIRE, keys, [owner, ttl_ms, waiter_ttl_ms])
    return int(value) if index < 0 else Lease(slots[index], int(value))


async def renew(connection: RedisConnection, pool: PoolKeys, lease: Lease, owner: str, ttl_ms: int) -> bool:
    """Extends a lease by `ttl_ms` from now; returns whether it was still held."""
    return bool(await connection.run(scripts.LEASE_RENEW, [pool.slot(lease.slot)], [owner, lease.fence, ttl_ms]))


async def release(connection: RedisConnection, pool: PoolKeys, slots: Sequence[str], owner: str) -> int:
    """Gives back those of the slots that an owner holds, and its place among the waiters.

    Wakes the longest waiter. Returns how many slots were given back.
    """
    keys = [*pool.waiting(slots), *map(pool.slot, slots)]
    num_released: int = await connection.run(scripts.LEASE_RELEASE, keys, [owner, pool.wake(""), WAKE_TTL_MS])
    return num_released


async def wait(connection: RedisConnection, pool: PoolKeys, owner: str, timeout_s: float) -> None:
    """Waits until a slot is given back to the next waiter, at most `timeout_s` (and at most connection.BLOCK_S)."""
    await connection.pop(pool.wake(owner), timeout_s)
