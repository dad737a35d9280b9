"""`make bench-simulation`: the adaptive wait against all fixed ones, simulated; or the simulator against validation.

python -m bench.simulation [--device gpu] [--load poisson] [--requests 8000] [--seeds 8]
python -m bench.simulation --check-real
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

from bench.cluster import ClusterError
from bench.simulation import plot, results, validation
from bench.simulation.comparison import CLOSED, JUDGES, REQUESTS, WITHIN, Effort, Result, Scene, compare, scenes
from bench.simulation.setup import DEVICES
from bench.simulation.traffic import LOADS

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "adaptive-wait.png"
WIDTH = 150


def main(
    device: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(DEVICES)}; all.")] = None,
    load: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join((*LOADS, CLOSED))}; all.")] = None,
    requests: Annotated[int, typer.Option(min=100, help="Least requests in a run.")] = REQUESTS,
    seeds: Annotated[int, typer.Option(min=2, help="Runs against the rival, which count.")] = JUDGES,
    processes: Annotated[int, typer.Option(min=1, help="At once.")] = os.cpu_count() or 1,
    check_real: Annotated[bool, typer.Option("--check-real", help="Predict a real cluster (three minutes).")] = False,
) -> None:
    """Compares, and writes bench/results/simulation.json and docs/images/adaptive-wait.png."""
    console = Console(highlight=False, width=WIDTH)
    if check_real:
        _check_real(console)
        return
    chosen = [scene for name in device or DEVICES for scene in scenes(name) if not load or scene.load in load]
    effort = Effort(requests, judges=seeds)
    found = _compare(console, chosen, effort, processes)
    merged = results.merged(results.read(results.PATH), found, effort)
    results.write(merged, results.PATH)
    if missing := results.num_missing(merged):
        console.print(
            f"{PICTURE.name} is not drawn: bench/results/{results.PATH.name} lacks {missing} scenes. "
            "Run: make bench-simulation"
        )
    else:
        plot.draw(merged, PICTURE)
    _conclude(console, found)


def _compare(console: Console, chosen: Sequence[Scene], effort: Effort, processes: int) -> list[Result]:
    found: list[Result] = []
    table = results.table()
    with ProcessPoolExecutor(processes) as pool, console.status("") as status:
        for result in pool.map(partial(compare, effort=effort), chosen):
            found.append(result)
            table.add_row(*results.row(result))
            status.update(f"{len(found)} of {len(chosen)}: {result.scene.device}, {results.name(result.scene)}")
    console.print(table)
    return found


def _conclude(console: Console, found: Sequence[Result]) -> None:
    worst = max(found, key=lambda result: result.short.share)
    clear = sum(result.short.clear for result in found)
    speeds = sorted(result.simulated_s / result.wall_s for result in found)
    per_s = sum(result.requests for result in found) / sum(result.wall_s for result in found)
    console.print(
        f"\nIn {clear} of {len(found)} scenes the adaptive wait is clearly over {WITHIN:.0%} short of its rival. "
        f"The furthest: {worst.short.share:.1%} ± {worst.short.error:.1%} "
        f"({worst.scene.device}, {results.name(worst.scene)}).\n"
        f"One core simulated {per_s:,.0f} requests a second: {speeds[0]:,.0f} to {speeds[-1]:,.0f} times real time, "
        f"{speeds[len(speeds) // 2]:,.0f} in the middle.",
        soft_wrap=True,
    )


def _check_real(console: Console) -> None:
    try:
        found = validation.check()
    except ClusterError as error:
        sys.exit(f"bench.simulation: {error}")
    table = Table(box=None, pad_edge=False)
    table.add_column("load")
    table.add_column("figure")
    for head in ("real", "predicted", "error"):
        table.add_column(head, justify="right")
    for each in found:
        colour = "red" if abs(each.error) > validation.TOLERANCE else "green"
        table.add_row(
            each.case, each.figure, f"{each.real:,.1f}", f"{each.predicted:,.1f}", f"[{colour}]{each.error:+.1%}"
        )
    console.print(table)
    if any(abs(each.error) > validation.TOLERANCE for each in found):
        sys.exit(f"bench.simulation: a prediction is off by more than {validation.TOLERANCE:.0%}")


if __name__ == "__main__":
    typer.run(main)
