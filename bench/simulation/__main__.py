"""`make bench-simulation`: simulates the adaptive wait and all fixed ones, or compares the simulator with a cluster.

python -m bench.simulation [--device gpu] [--load poisson] [--requests 8000] [--seeds 8]
python -m bench.simulation --check-real
python -m bench.simulation --short-long
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import document
from bench.cluster import ClusterError
from bench.simulation import plot, results, short_long, validation, wait_by_queue
from bench.simulation.comparison import (
    CLOSED,
    FINAL_RUNS,
    MAX_SHORTFALL,
    REQUESTS,
    Effort,
    Result,
    Scenario,
    compare,
    scenarios,
)
from bench.simulation.setup import DEVICES
from bench.simulation.traffic import LOADS

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "adaptive-wait.png"
WIDTH = 150


def main(  # noqa: PLR0913 - one for each option
    *,
    device: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(DEVICES)}. Default: all.")] = None,
    load: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join((*LOADS, CLOSED))}. Default: all.")] = None,
    requests: Annotated[int, typer.Option(min=100, help="Minimum requests in a run.")] = REQUESTS,
    seeds: Annotated[int, typer.Option(min=2, help="Final runs against the rival: these count.")] = FINAL_RUNS,
    processes: Annotated[int, typer.Option(min=1, help="Parallel processes.")] = os.cpu_count() or 1,
    check_real: Annotated[bool, typer.Option("--check-real", help="Predict a real cluster (three minutes).")] = False,
    only_short_long: Annotated[bool, typer.Option("--short-long", help="Short texts beside long ones only.")] = False,
) -> None:
    """Compares, and writes bench/results/simulation.json, and the table and pictures of the documents."""
    console = Console(highlight=False, width=WIDTH)
    if check_real:
        _check_real(console)
        return
    _compare_orders(console, processes)
    if only_short_long:
        return
    _show_waits(console)
    selected = [each for name in device or DEVICES for each in scenarios(name) if not load or each.load in load]
    effort = Effort(requests, final_runs=seeds)
    all_results = _compare(console, selected, effort, processes)
    merged = results.merged(results.read(results.PATH), all_results, effort)
    results.write(merged, results.PATH)
    if missing := results.num_missing(merged):
        console.print(
            f"{PICTURE.name} is not drawn: bench/results/{results.PATH.name} lacks {missing} scenarios. "
            "Run: make bench-simulation"
        )
    else:
        plot.draw(merged, PICTURE)
    _conclude(console, all_results)


def _compare(console: Console, selected: Sequence[Scenario], effort: Effort, processes: int) -> list[Result]:
    all_results: list[Result] = []
    table = results.table()
    with ProcessPoolExecutor(processes) as pool, console.status("") as status:
        for result in pool.map(partial(compare, effort=effort), selected):
            all_results.append(result)
            table.add_row(*results.row(result))
            status.update(
                f"{len(all_results)} of {len(selected)}: {result.scenario.device}, {results.name(result.scenario)}"
            )
    console.print(table)
    return all_results


def _compare_orders(console: Console, processes: int) -> None:
    with ProcessPoolExecutor(processes) as pool:
        comparisons = list(pool.map(short_long.compare_orders, short_long.SHOWN_DEVICES))
    table = short_long.table(comparisons)
    console.print(f"Short texts beside requests of long ones:\n\n{table}\n")
    document.write_blocks({short_long.BLOCK: table})
    plot.draw_orders(comparisons, document.IMAGES / "short-long.png")


def _show_waits(console: Console) -> None:
    table = wait_by_queue.table(wait_by_queue.measure_waits())
    console.print(f"The wait of a free engine, by the number of waiting inputs:\n\n{table}\n")
    document.write_blocks({wait_by_queue.BLOCK: table})


def _conclude(console: Console, all_results: Sequence[Result]) -> None:
    worst = max(all_results, key=lambda result: result.shortfall.share)
    clear = sum(result.shortfall.clear for result in all_results)
    speeds = sorted(result.simulated_s / result.wall_s for result in all_results)
    per_s = sum(result.requests for result in all_results) / sum(result.wall_s for result in all_results)
    console.print(
        f"\nIn {clear} of {len(all_results)} scenarios the adaptive wait is clearly over {MAX_SHORTFALL:.0%} worse "
        f"than its rival. The largest shortfall: {worst.shortfall.share:.1%} ± {worst.shortfall.error:.1%} "
        f"({worst.scenario.device}, {results.name(worst.scenario)}).\n"
        f"One core simulated {per_s:,.0f} requests per second: {speeds[0]:,.0f} to {speeds[-1]:,.0f} times real time, "
        f"with a median of {speeds[len(speeds) // 2]:,.0f}.",
        soft_wrap=True,
    )


def _check_real(console: Console) -> None:
    try:
        predictions = validation.check()
    except ClusterError as error:
        sys.exit(f"bench.simulation: {error}")
    table = Table(box=None, pad_edge=False)
    table.add_column("load")
    table.add_column("figure")
    for head in ("real", "predicted", "error"):
        table.add_column(head, justify="right")
    for each in predictions:
        color = "red" if abs(each.error) > validation.TOLERANCE else "green"
        table.add_row(
            each.case, each.figure, f"{each.real:,.1f}", f"{each.predicted:,.1f}", f"[{color}]{each.error:+.1%}"
        )
    console.print(table)
    if any(abs(each.error) > validation.TOLERANCE for each in predictions):
        sys.exit(f"bench.simulation: a prediction is off by more than {validation.TOLERANCE:.0%}")


if __name__ == "__main__":
    typer.run(main)
