"""One measurement: a load, and in its middle a window between two snapshots."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.cost import Cost, Processes, Served, per_request, snapshot
from bench.generator import MARGIN_S, SETTLE_S, Load, connect_s, parse, parse_ticks, start, stop

LEAD_S = 0.5
TAIL_S = 0.5
GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many clients, how long the window is, what goes before it, and an unmeasured load before all (0: none)."""

    clients: int
    seconds: float
    lead_s: float = LEAD_S
    warmup_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load gave.

    Attributes:
        load: its latencies and errors, as a whole.
        requests_per_s: answers a second in the window.
        cost: what each answer cost there; `generator` is a role too.
        first: the index of the first request that was answered in the window, about.
        last: the same of the first that was answered after it.
    """

    load: Load
    requests_per_s: float
    cost: Cost
    first: int
    last: int


def measure(served: Served, bodies: Path, pace: Pace, within: Callable[[Processes], None] | None = None) -> Measured:
    """Puts a closed loop on a server and measures it.

    Args:
        served: the server.
        bodies: of the requests, one a line.
        pace: how much, and how long.
        within: called with the processes after the window, while the load is still on.

    Raises:
        GeneratorError: wrk is missing, or failed.
    """
    if pace.warmup_s > 0:
        _finish(start(served.url, bodies, clients=pace.clients, seconds=pace.warmup_s))
        time.sleep(SETTLE_S)
    tail_s = TAIL_S if within is None else TAIL_S + 1
    process = start(served.url, bodies, clients=pace.clients, seconds=pace.lead_s + pace.seconds + tail_s)
    try:
        members = {**served.processes(), GENERATOR: [psutil.Process(process.pid)]}
        time.sleep(connect_s(pace.clients) + pace.lead_s)
        before = snapshot(served, members)
        time.sleep(pace.seconds)
        after = snapshot(served, members)
        if within is not None:
            within(members)
        output = _finish(process)
    finally:
        stop(process)
    ticks = parse_ticks(output)
    first, last = (ticks.sent_by(each.at_s) - pace.clients for each in (before, after))
    cost = per_request(before, after, last - first)
    rate = (last - first) / (after.at_s - before.at_s)
    return Measured(parse(output), rate, cost, max(0, round(first)), round(last))


def _finish(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=MARGIN_S)[0]
    finally:
        stop(process)
