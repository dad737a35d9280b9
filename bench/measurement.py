"""One measurement: a load, and in its middle a window between two snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.cost import Cost, Processes, Served, Snapshot, per_request, snapshot
from bench.wrk import GeneratorError, Load, connect_s, finish, parse, parse_ticks, start, stop, warm_up

LEAD_S = 0.5
TAIL_S = 0.5
GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A load: how many clients, how long the window is, what goes before it, and a load before all that (0: none).

    The tail is the load behind the window, which has to last until a request is sent that ends it.
    """

    clients: int
    seconds: float
    lead_s: float = LEAD_S
    warmup_s: float = 1.0
    tail_s: float = TAIL_S


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


def measure(
    served: Served, bodies: Path, loop: ClosedLoop, within: Callable[[Processes], None] | None = None
) -> Measured:
    """Puts a closed loop on a server and measures it.

    Args:
        served: the server.
        bodies: of the requests, one a line.
        loop: how much, and how long.
        within: called with the processes after the window, while the load is still on.

    Raises:
        GeneratorError: wrk is missing, or failed, or nothing was answered in the window.
    """
    if loop.warmup_s > 0:
        warm_up(served.url, bodies, clients=loop.clients, seconds=loop.warmup_s)
    tail_s = loop.tail_s if within is None else loop.tail_s + 1
    process = start(served.url, bodies, clients=loop.clients, seconds=loop.lead_s + loop.seconds + tail_s)
    try:
        members = {**served.processes(), GENERATOR: [psutil.Process(process.pid)]}
        time.sleep(connect_s(loop.clients) + loop.lead_s)
        before = snapshot(served, members)
        time.sleep(loop.seconds)
        after = snapshot(served, members)
        if within is not None:
            within(members)
        output = finish(process)
    finally:
        stop(process)
    return between(before, after, output, loop.clients)


def between(before: Snapshot, after: Snapshot, output: str, clients: int) -> Measured:
    """Returns what a load of so many clients gave, of which wrk printed `output`, between two snapshots.

    Raises:
        GeneratorError: nothing was answered there, or the load did not last that long.
    """
    load, ticks = parse(output), parse_ticks(output)
    if load.requests <= load.errors:
        raise GeneratorError(f"no request was answered: {load.errors} failed")
    first, last = (ticks.sent_by(each.at_s) - clients for each in (before, after))
    if last <= first:
        raise GeneratorError("no request was answered in the window")
    rate = (last - first) / (after.at_s - before.at_s)
    return Measured(load, rate, per_request(before, after, last - first), max(0, round(first)), round(last))
