"""Leases of GPUs: which worker uses which slot of a pool, for how long, and which worker is next.

A lease is advisory: a GPU cannot check a fence. docs/leases.md lists the guarantees and their limits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from shared import scripts
from shared.connection import RedisConnection
from shared.keys import PoolKeys

WAKE_TTL_MS = 10_000

SILENT_MS = 5_000
"""A waiter that has not repeated its request for this time no longer waits."""


class Lease(NamedTuple):
    """A slot by its name, and the fence under which it is held: larger than the fences of all previous holders."""

    slot: str
    fence: int


class SlotState(NamedTuple):
    """A slot: the worker that holds it, under which fence, and for how many ms unless it renews; free without one."""

    slot: str
    worker: str = ""
    fence: int = 0
    left_ms: int = 0


class Waiter(NamedTuple):
    """A worker that waits for its turn on one of these slots, and for how many ms it has."""

    worker: str
    slots: tuple[str, ...]
    waits_ms: int


class PoolState(NamedTuple):
    """The slots of a pool, and who waits for a turn, by slots and in their order."""

    slots: tuple[SlotState, ...]
    waiters: tuple[Waiter, ...]


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


async def pool_state(connection: RedisConnection, pool: PoolKeys, slot_sets: Collection[tuple[str, ...]]) -> PoolState:
    """Returns the state of the slots of a pool.

    Args:
        connection: a connection, of a user that may read.
        pool: the pool of GPUs.
        slot_sets: the slots that workers accept. Those that accept the same slots wait in one line.
    """
    ordered = sorted({tuple(sorted(each)) for each in slot_sets})
    slots = sorted({slot for each in ordered for slot in each}, key=lambda slot: (len(slot), slot))
    keys = [*(key for each in ordered for key in pool.waiting(each)), *map(pool.slot, slots)]
    now_ms, lines, held = await connection.run(scripts.LEASE_STATUS, keys, [len(ordered)])
    waiters = [
        Waiter(_worker_of(owner.decode()), accepted, max(0, now_ms - first_ms))
        for accepted, line in zip(ordered, lines, strict=True)
        for owner, first_ms, last_ms in zip(line[::3], line[1::3], line[2::3], strict=True)
        if now_ms - last_ms <= SILENT_MS
    ]
    states = [_slot_state(slot, value.decode(), left_ms) for slot, (value, left_ms) in zip(slots, held, strict=True)]
    return PoolState(tuple(states), tuple(waiters))


def _slot_state(slot: str, value: str, left_ms: int) -> SlotState:
    if not value:
        return SlotState(slot)
    owner, _, fence = value.rpartition(" ")
    return SlotState(slot, _worker_of(owner), int(fence) if fence.isdecimal() else 0, max(0, left_ms))


def _worker_of(owner: str) -> str:
    """Returns the worker of an owner, which is named `<worker>:<random>`."""
    return owner.rpartition(":")[0] or owner
