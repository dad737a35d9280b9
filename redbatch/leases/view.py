"""The leases of GPUs as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from redbatch.tables import plain_table
from shared.gpu_pools import HELD, PoolView, pool_as_dict
from shared.process.log_text import printable_line

WAITING = "waiting"


def as_json(pools: Sequence[PoolView]) -> str:
    """Returns one line of JSON for each pool."""
    return "\n".join(json.dumps(pool_as_dict(pool)) for pool in pools)


def as_text(pools: Sequence[PoolView], name: str | None = None) -> Group | Text:
    """Returns a table for each pool; a hint if there are none, or none of this name."""
    if not pools:
        which = "shares GPUs by leases (--gpu-lease)" if name is None else f"uses a pool with the name {name}"
        return Text(f"no live worker {which}")
    return Group(*(part for pool in pools for part in _pool_text(pool_as_dict(pool))))


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
