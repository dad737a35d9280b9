"""Pools of GPUs with the workers that use them: for `redbatch leases` and for the console of a gateway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from shared.connection import RedisConnection
from shared.gpu_leases import PoolState, pool_state
from shared.keys import PoolKeys
from shared.messages import STANDBY, Heartbeat

HELD, FREE = "held", "free"


class PoolMember(NamedTuple):
    """A live worker that uses a pool, and its queue."""

    queue: str
    beat: Heartbeat


class PoolView(NamedTuple):
    """A pool, its slots and waiters, and the workers that use it."""

    name: str
    state: PoolState
    members: tuple[PoolMember, ...]


async def read_pools(connection: RedisConnection, members: Iterable[PoolMember]) -> list[PoolView]:
    """Returns the pools that these workers use, by name. Raises RedisUnreachableError.

    Args:
        connection: to the Redis that has the leases: with shards, the first.
        members: live workers; those that use no pool are left out.
    """
    by_pool: dict[str, list[PoolMember]] = defaultdict(list)
    for member in members:
        if member.beat.gpu_pool:
            by_pool[member.beat.gpu_pool].append(member)
    return [
        PoolView(
            pool,
            await pool_state(connection, PoolKeys(pool), {member.beat.gpu_slots for member in by_pool[pool]}),
            tuple(by_pool[pool]),
        )
        for pool in sorted(by_pool)
    ]


def pool_as_dict(pool: PoolView) -> dict[str, Any]:
    """Returns a pool for JSON: its slots, and the workers that wait, in the order of their turns.

    A worker on standby for a whole GPU has no place in that order; since when it waits is unknown (null).
    """
    members = {member.beat.worker: member for member in pool.members}
    waiting = [
        _worker(members, waiter.worker) | {"slots": list(waiter.slots), "waits_s": waiter.waits_ms / 1000}
        for waiter in pool.state.waiters
    ]
    in_line = {waiter.worker for waiter in pool.state.waiters}
    waiting += [
        _worker(members, member.beat.worker) | {"slots": list(member.beat.gpu_slots), "waits_s": None}
        for member in sorted(pool.members, key=lambda member: member.beat.worker)
        if member.beat.state == STANDBY and member.beat.worker not in in_line
    ]
    return {
        "pool": pool.name,
        "slots": [
            {"slot": slot.slot, "state": HELD}
            | _worker(members, slot.worker)
            | {"fence": slot.fence, "left_s": slot.left_ms / 1000}
            if slot.worker
            else {"slot": slot.slot, "state": FREE}
            for slot in pool.state.slots
        ],
        "waiting": waiting,
    }


def _worker(members: dict[str, PoolMember], name: str) -> dict[str, Any]:
    """Returns a worker with its queue and host; without them if it has no heartbeat, as after its death."""
    member = members.get(name)
    return {
        "worker": name,
        "queue": None if member is None else member.queue,
        "host": None if member is None else member.beat.host,
    }
