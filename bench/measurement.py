"""One measurement: a load, and a window between two snapshots in the middle of the load."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.cost import Cost, Processes, Server, Snapshot, per_request, snapshot
from bench.wrk import GeneratorError, LoadResult, connect_s, finish, parse, parse_ticks, start, stop, warm_up

LEAD_S = 0.5
TAIL_S = 0.5
GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A load: number of clients, length of the window, lead before it, and a separate warm-up load (0: none).

    The tail is the load after the window: it must last until the next request, whose tick ends the window.
    """

    clients: int
    seconds: float
    lead_s: float = LEAD_S
    warmup_s: float = 1.0
    tail_s: float = TAIL_S


@dataclass(frozen=True, slots=True)
class Measurement:
    """Results of a measurement.

    Attributes:
        load: latencies and errors of the whole load.
        requests_per_s: answers per second in the window.
        cost: cost per answer in the window; `generator` is one of the roles.
        first: approximate index of the first request that was answered in the window.
        last: approximate index of the first request that was answered after the window.
    """

    load: LoadResult
    requests_per_s: float
    cost: Cost
    first: int
    last: int


def measure(
    server: Server, bodies: Path, loop: ClosedLoop, inspect: Callable[[Processes], None] | None = None
) -> Measurement:
    """Sends a closed loop to a server and measures it.

    Args:
        server: the server.
        bodies: file with the bodies of the requests, one per line.
        loop: the load.
        inspect: called with the processes after the window, while the load is still running.

    Raises:
        GeneratorError: wrk is missing, or failed, or nothing was answered in the window.
        ClusterError: a process died.
    """
    if loop.warmup_s > 0:
        warm_up(server.url, bodies, clients=loop.clients, seconds=loop.warmup_s)
    tail_s = loop.tail_s if inspect is None else loop.tail_s + 1
    process = start(server.url, bodies, clients=loop.clients, seconds=loop.lead_s + loop.seconds + tail_s)
    try:
        members = {**server.processes(), GENERATOR: [psutil.Process(process.pid)]}
        time.sleep(connect_s(loop.clients) + loop.lead_s)
        before = snapshot(server, members)
        time.sleep(loop.seconds)
        after = snapshot(server, members)
        if inspect is not None:
            inspect(members)
        output = finish(process)
    finally:
        stop(process)
    return measurement_between(before, after, output, loop.clients)


def measurement_between(before: Snapshot, after: Snapshot, output: str, clients: int) -> Measurement:
    """Returns the results of a load between two snapshots, from the output of wrk with this number of clients.

    Raises:
        GeneratorError: nothing was answered between them, or the load was shorter.
    """
    load, ticks = parse(output), parse_ticks(output)
    if load.requests <= load.errors:
        raise GeneratorError(f"no request was answered: {load.errors} failed")
    first, last = (ticks.sent_by(each.at_s) - clients for each in (before, after))
    if last <= first:
        raise GeneratorError("no request was answered in the window")
    rate = (last - first) / (after.at_s - before.at_s)
    return Measurement(load, rate, per_request(before, after, last - first), max(0, round(first)), round(last))
