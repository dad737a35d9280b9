"""`make bench-scale`: whether a request costs more CPU with more gateways and workers, at the same rate of requests.

python -m bench.scale [--quick] [--rate 1000] [--rounds 3]

Clusters of 1, 2, 4 and 8 gateways and as many workers, with the model `null`, get the same open loop in turns. Before
its load each is idle for some seconds: what it uses then, for heartbeats and polls, is also part of the cost of a
request, and is reported apart.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import typer

from bench import redbatch_bench
from bench.cluster import ROLES, Cluster, ClusterError, Shape, cluster
from bench.cost import Processes, Snapshot, per_request, snapshot
from bench.failures import FAILURES, reason
from bench.figures import Row
from bench.publication import Publication, publish, start_run
from bench.rounds import Round
from bench.step import ERRORS
from bench.tables import format_median, format_spread, markdown
from redbatch.up.local_redis import find_server

BLOCK = "scale"
SIZES = (1, 2, 4, 8)
MAX_GROWTH = 1.1
"""Median of the ratios of the largest to the smallest size, of all CPU per request, above which the run fails."""

MIN_ANSWERED = 0.95
"""Share of the requests that must be answered before the load ends; a cluster that does not keep up answers fewer."""

SETTLE_S, LEAD_S, TAIL_S = 1.0, 1.0, 1.0
START_S, POLL_S = 30.0, 0.05
ADDED = "xadd"
"""The command of Redis that is called once for each request of one input."""

SUM, IDLE, ANSWERED = "sum_us", "idle_us", "answered_share"


@dataclass(frozen=True, slots=True)
class Extent:
    """The sizes, the number of rounds, and the seconds of the idle window and of that under load."""

    sizes: Sequence[int] = SIZES
    rounds: int = 3
    idle_s: float = 6.0
    window_s: float = 8.0


QUICK = Extent((1, 2), 1, 1.0, 1.0)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
    rate: Annotated[float, typer.Option(min=1, help="Requests per second, in all.")] = 1_000,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds; the table has the medians.")] = Extent().rounds,
) -> None:
    """Measures, and exits with 0, or with 1 if a request costs too much more on the largest cluster."""
    run_start = start_run()
    extent = QUICK if quick else Extent(rounds=rounds)
    try:
        find_server()
        rows = list(measure_all(extent, rate))
    except FAILURES as error:
        sys.exit(f"bench-scale: {reason(error)}")
    results = publish(Publication(BLOCK, table, quick), run_start, extent.rounds, rows)
    ratios = growth(results["tables"])
    print(verdict(ratios))
    sys.exit(0 if median(ratios) <= MAX_GROWTH else 1)


def measure_all(extent: Extent, rate: float) -> Iterator[Row]:
    """Yields a row for each size in each round. Raises like `measure`."""
    for number in range(extent.rounds):
        for size in Round(number, extent.rounds).rotate(extent.sizes):
            print(f"round {number + 1} of {extent.rounds}: {size} gateways and workers", flush=True)
            yield measure(size, rate, extent, seed=number + 1)


def measure(size: int, rate: float, extent: Extent, seed: int) -> Row:
    """Returns the CPU per request of a cluster of this size, idle and under load; the same seed gives the same load.

    Raises:
        ClusterError: requests failed, or the cluster did not keep up.
        GeneratorError: `redbatch bench` failed.
    """
    duration_s = LEAD_S + extent.window_s + TAIL_S
    load = ("--rate", f"{rate:g}", "--duration", f"{duration_s:g}s", "--mix", "short", "--seed", str(seed))
    with cluster(Shape("null", gateways=size, workers=size)) as running, ThreadPoolExecutor(1) as pool:
        processes = running.processes()
        time.sleep(SETTLE_S)
        idle = window(running, processes, extent.idle_s)
        generator = pool.submit(redbatch_bench.run, running.url, *load)
        _wait_until_loaded(running, processes, generator)
        time.sleep(LEAD_S)
        loaded = window(running, processes, extent.window_s)
        measured = generator.result()["measured"]
    row = Row(BLOCK, {"size": size, "rate": f"{rate:g}"}, figures(idle, loaded, measured, rate))
    validate(row)
    return row


def validate(row: Row) -> None:
    """Raises ClusterError unless all requests were answered, and as fast as they came."""
    name, failed = f"{row.of['size']} gateways and workers", row.figures[ERRORS]
    if failed:
        raise ClusterError(f"{name}: {failed:.0f} requests failed")
    if row.figures[ANSWERED] < MIN_ANSWERED:
        raise ClusterError(f"{name}: only {row.figures[ANSWERED]:.0%} answered in time: choose a lower --rate")


Window = tuple[Snapshot, Snapshot]


def window(running: Cluster, processes: Processes, seconds: float) -> Window:
    """Returns the counters of these processes before and after this time."""
    before = snapshot(running, processes)
    time.sleep(seconds)
    return before, snapshot(running, processes)


def _wait_until_loaded(running: Cluster, processes: Processes, generator: Future[dict[str, Any]]) -> None:
    """Waits for the first request that a new cluster gets. Raises ClusterError if none comes."""
    until = time.monotonic() + START_S
    while not _added(snapshot(running, processes)):
        if generator.done() or time.monotonic() > until:
            raise (generator.done() and generator.exception()) or ClusterError("no request reached Redis")
        time.sleep(POLL_S)


def _added(of: Snapshot) -> int:
    return of.commands.get(ADDED, 0)


def figures(idle: Window, loaded: Window, measured: Mapping[str, Any], rate: float) -> dict[str, float]:
    """Returns the CPU of each role and of all per request; of idle processes, per request at this rate."""
    requests = _added(loaded[1]) - _added(loaded[0])
    if not requests:
        raise ClusterError("no request reached Redis in the window")
    cpu_us = per_request(*loaded, requests).cpu_us
    idle_us = per_request(*idle, (idle[1].at_s - idle[0].at_s) * rate).cpu_us
    return {
        **{f"cpu_us.{role}": cpu_us[role] for role in ROLES},
        SUM: sum(cpu_us[role] for role in ROLES),
        IDLE: sum(idle_us[role] for role in ROLES),
        "requests_per_s": requests / (loaded[1].at_s - loaded[0].at_s),
        "p50_ms": measured["latency_ms"]["p50"],
        "p99_ms": measured["latency_ms"]["p99"],
        ANSWERED: measured["answers_in_window"] / measured["requests"],
        ERRORS: float(sum(measured["errors"].values())),
    }


def growth(folded: Sequence[Mapping[str, Any]]) -> list[float]:
    """Returns the cost of a request on the largest cluster over that on the smallest, in each round."""
    runs = {row["of"]["size"]: row["figures"][SUM]["runs"] for row in folded}
    return [large / small for small, large in zip(runs[min(runs)], runs[max(runs)], strict=True)]


def verdict(ratios: Sequence[float]) -> str:
    """Returns the result as a line."""
    middle = median(ratios)
    passed = "passed" if middle <= MAX_GROWTH else f"FAILED: it must be at most {MAX_GROWTH}"
    return f"largest over smallest cluster: {middle:.3f} ({min(ratios):.2f} to {max(ratios):.2f}): {passed}"


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ("gateways", "workers", "requests/s", *ROLES, "sum", "of it idle", "p50 ms", "p99 ms")
    rows = [
        [
            *[str(row["of"]["size"])] * 2,
            format_median(row, "requests_per_s"),
            *(format_median(row, f"cpu_us.{role}") for role in ROLES),
            format_spread(row, SUM),
            *(format_median(row, name) for name in (IDLE, "p50_ms", "p99_ms")),
        ]
        for row in sorted(folded, key=lambda row: int(row["of"]["size"]))
    ]
    return markdown(heads, rows, left=0)


if __name__ == "__main__":
    typer.run(main)
