"""The state of a queue as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from redbatch.tables import plain_table
from shared.keys import LANES
from shared.producer import QueueStats


def as_dict(queue_name: str, stats: QueueStats) -> dict[str, Any]:
    """Returns the state for JSON. Entries are stream messages; inputs, tokens and bytes are sums over all entries."""
    return {
        "queue": queue_name,
        "waiting_entries": stats.waiting,
        "in_flight_entries": stats.pending,
        "entries_by_lane": dict(zip(LANES, stats.by_lane, strict=True)),
        "inputs": stats.inputs,
        "tokens": stats.tokens,
        "bytes": stats.bytes,
        "oldest_age_ms": stats.oldest_age_ms,
        "workers": [
            {
                "worker": beat.worker,
                "host": beat.host,
                "pid": beat.pid,
                "device": beat.device,
                "model": beat.model,
                "dim": beat.dim,
                "state": beat.state,
                "tokens_per_s": beat.tokens_per_s,
                "holds_entries": beat.holds,
                "begun_entries": beat.begun,
                "up_s": max(0, stats.now_ms - beat.started_ms) / 1000,
            }
            for beat in sorted(stats.workers, key=lambda beat: beat.worker)
        ],
    }


def as_json(queue_name: str, stats: QueueStats) -> str:
    """Returns the state as one line of JSON."""
    return json.dumps(as_dict(queue_name, stats))


def as_text(queue_name: str, stats: QueueStats) -> Group:
    """Returns the state as text, with a table of the workers."""
    in_bytes = f", {stats.bytes:,} bytes for functions" if stats.bytes else ""
    numbers = [
        ("waiting", f"{stats.waiting:,} entries"),
        ("in flight", f"{stats.pending:,} entries"),
        ("by lane", ", ".join(f"{n:,} {lane}" for lane, n in zip(LANES, stats.by_lane, strict=True))),
        ("total", f"{stats.inputs:,} inputs, about {stats.tokens:,} tokens{in_bytes}"),
        ("oldest", f"{stats.oldest_age_ms / 1000:.1f} s" if stats.entries else "no entries"),
    ]
    head = Text(f"Queue {queue_name}", style="bold")
    lines = [Text.assemble((f"  {label:<10}", "bold"), value) for label, value in numbers]
    return Group(head, *lines, _workers(stats))


def _workers(stats: QueueStats) -> Table | Text:
    if not stats.workers:
        return Text("  no worker is alive: start one with `redbatch worker`", style="yellow")
    table = plain_table()
    for heading in ("worker", "state", "model", "device"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "worker")
    for heading in ("holds", "running", "tokens/s", "up"):
        table.add_column(heading, justify="right", no_wrap=True)
    for beat in sorted(stats.workers, key=lambda beat: beat.worker):
        up_s = max(0, stats.now_ms - beat.started_ms) // 1000
        numbers = (str(beat.holds), str(beat.begun), f"{beat.tokens_per_s:,.0f}", f"{up_s} s")
        texts = (beat.worker, beat.state, beat.model, beat.device)
        table.add_row(*(Text(text) for text in (*texts, *numbers)))
    return table
