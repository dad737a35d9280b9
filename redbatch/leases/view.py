"""The leases of GPUs as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Group
from rich.text import Text

from redbatch.tables import plain_table
from shared.gpu_leases import PoolState
from shared.messages import STANDBY, Heartbeat
from shared.process.log_text import printable_line

HELD, FREE, WAITING = "held", "free", "waiting"


class PoolMember(NamedTuple):
    """A live worker that uses a pool, and its queue."""

    queue: str
    beat: Heartbeat


class PoolView(NamedTuple):
    """A pool, its slots and waiters, and the workers that use it."""

    name: str
    state: PoolState
    members: tuple[PoolMember, ...]


def as_dict(pool: PoolView) -> dict[str, Any]:
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


def as_json(pools: Sequence[PoolView]) -> str:
    """Returns one line of JSON for each pool."""
    return "\n".join(json.dumps(as_dict(pool)) for pool in pools)


def as_text(pools: Sequence[PoolView], name: str | None = None) -> Group | Text:
    """Returns a table for each pool; a hint if there are none, or none of this name."""
    if not pools:
        which = "shares GPUs by leases (--gpu-lease)" if name is None else f"uses a pool with the name {name}"
        return Text(f"no live worker {which}")
    return Group(*(part for pool in pools for part in _pool_text(as_dict(pool))))


def _pool_text(pool: dict[str, Any]) -> tuple[Any, ...]:
    table = plain_table()
    table.add_columns("slot", "state", "worker", "queue", "host")
    table.add_columns("left", "waits", "fence", justify="right", no_wrap=True)
    for row in pool["slots"]:
        times = (f"{row['left_s']:.1f} s", "", str(row["fence"])) if row["state"] == HELD else ("", "", "")
        table.add_row(row["slot"], row["state"], *_names(row), *times)
    for row in pool["waiting"]:
        waits = "" if row["waits_s"] is None else f"{row['waits_s']:.1f} s"
        table.add_row(",".join(row["slots"]), WAITING, *_names(row), "", waits, "")
    return Text(f"Pool {printable_line(pool['pool'])}", style="bold"), table


def _names(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row.get(name) or "" for name in ("worker", "queue", "host"))
