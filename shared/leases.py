"""Leases of GPUs: which worker uses which slot of a pool, for how long, and who is next.

A lease is advisory: a GPU cannot check a fence. What is promised, and what is not, is in docs/leases.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared import scripts
from shared.keys import Pool
from shared.connection import Link

WAKE_TTL_MS = 10_000


class Lease(NamedTuple):
    """A slot by its name, and the fence under which it is held: each holder's is larger than all before."""

    slot: str
    fence: int


async def take(
    link: Link, pool: Pool, slots: Sequence[str], owner: str, ttl_ms: int, *, patience_ms: int = 0
) -> Lease | int:
    """Asks for one of some slots, the first that is free.

    Args:
        link: a connection.
        pool: of the GPUs.
        slots: their names, in order of preference.
        owner: names the holder; no two processes have the same.
        ttl_ms: lifetime of the lease.
        patience_ms: slots go to who asked first, unless that was so long ago; 0: to whoever asks.

    Returns:
        The lease; or in how many ms, at the latest, one of them runs out.
    """
    keys = [pool.fence, *pool.waiting(slots), *map(pool.slot, slots)]
    index, value = await link.run(scripts.LEASE_TAKE, keys, [owner, ttl_ms, patience_ms])
    return int(value) if index < 0 else Lease(slots[index], int(value))


async def renew(link: Link, pool: Pool, lease: Lease, owner: str, ttl_ms: int) -> bool:
    """Keeps a lease for another `ttl_ms`; returns whether it was still held."""
    return bool(await link.run(scripts.LEASE_RENEW, [pool.slot(lease.slot)], [owner, lease.fence, ttl_ms]))


async def release(link: Link, pool: Pool, slots: Sequence[str], owner: str) -> int:
    """Gives back which of these slots an owner holds, and its place among those who wait for them.

    Wakes who waits longest. Returns how many were given back.
    """
    keys = [*pool.waiting(slots), *map(pool.slot, slots)]
    given: int = await link.run(scripts.LEASE_RELEASE, keys, [owner, pool.wake(""), WAKE_TTL_MS])
    return given


async def wait(link: Link, pool: Pool, owner: str, timeout_s: float) -> None:
    """Waits until a slot is given back to whoever is next, or for so long (at most queue.BLOCK_S)."""
    await link.pop(pool.wake(owner), timeout_s)
