"""`redbatch queue`: the queue at a glance."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shared.keys import LANES
from shared.connection import Queue
from shared.settings import QueueSettings
from shared.producer import Pulse, pulse

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH_EVERY_S = 1.0


async def look(settings: QueueSettings, queue_name: str) -> Pulse:
    """Returns the state of the queue. Raises RedisUnreachable, or ValueError for what is no URL of a Redis."""
    queue = Queue(settings, queue_name, f"redbatch-cli-{os.getpid()}")
    try:
        return await pulse(queue.link("queue"), queue.keys)
    finally:
        await queue.close()


async def watch(settings: QueueSettings, queue_name: str, show: Callable[[Pulse], None]) -> None:
    """Hands the state of the queue to `show` each second, until cancelled. Raises as `look` does."""
    queue = Queue(settings, queue_name, f"redbatch-cli-{os.getpid()}")
    link = queue.link("queue")
    try:
        while True:
            show(await pulse(link, queue.keys))
            await asyncio.sleep(WATCH_EVERY_S)
    finally:
        await queue.close()


def as_dict(queue_name: str, state: Pulse) -> dict[str, Any]:
    """Returns the state as JSON has it. Entries are stream messages; inputs and tokens are those of all entries."""
    return {
        "queue": queue_name,
        "waiting_entries": state.waiting,
        "in_flight_entries": state.pending,
        "entries_by_lane": dict(zip(LANES, state.by_lane, strict=True)),
        "inputs": state.inputs,
        "tokens": state.tokens,
        "oldest_age_ms": state.oldest_age_ms,
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
                "up_s": max(0, state.now_ms - beat.started_ms) / 1000,
            }
            for beat in sorted(state.workers, key=lambda beat: beat.worker)
        ],
    }


def as_json(queue_name: str, state: Pulse) -> str:
    """Returns the state as one line of JSON."""
    return json.dumps(as_dict(queue_name, state))


def as_text(queue_name: str, state: Pulse) -> Group:
    """Returns the state as people read it."""
    numbers = [
        ("waiting", f"{state.waiting:,} entries"),
        ("in flight", f"{state.pending:,} entries"),
        ("by lane", ", ".join(f"{n:,} {lane}" for lane, n in zip(LANES, state.by_lane, strict=True))),
        ("together", f"{state.inputs:,} inputs, about {state.tokens:,} tokens"),
        ("oldest", f"{state.oldest_age_ms / 1000:.1f} s" if state.entries else "none waits"),
    ]
    head = Text(f"Queue {queue_name}", style="bold")
    lines = [Text.assemble((f"  {label:<10}", "bold"), value) for label, value in numbers]
    return Group(head, *lines, _workers(state))


def _workers(state: Pulse) -> Table | Text:
    if not state.workers:
        return Text("  no worker lives: start one with `redbatch worker`", style="yellow")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("worker", "state", "model", "device"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "worker")
    for heading in ("holds", "begun", "tokens/s", "up"):
        table.add_column(heading, justify="right", no_wrap=True)
    for beat in sorted(state.workers, key=lambda beat: beat.worker):
        up_s = max(0, state.now_ms - beat.started_ms) // 1000
        numbers = (str(beat.holds), str(beat.begun), f"{beat.tokens_per_s:,.0f}", f"{up_s} s")
        texts = (beat.worker, beat.state, beat.model, beat.device)
        table.add_row(*(Text(text) for text in (*texts, *numbers)))
    return table


@contextmanager
def watching(console: Console, queue_name: str, *, in_json: bool) -> Iterator[Callable[[Pulse], None]]:
    """Gives a function that shows a state: in place on a terminal, else below the last one."""
    if in_json:
        yield lambda state: typer.echo(as_json(queue_name, state))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda state: live.update(as_text(queue_name, state), refresh=True)
    else:
        yield lambda state: console.print(as_text(queue_name, state))
