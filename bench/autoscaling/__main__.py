"""`make bench-autoscaling`: a day under the autoscalers of k8s/, and under others, simulated; into docs/autoscaling.md.

python -m bench.autoscaling [--quick]
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import results
from bench.autoscaling import gateways, manifests, picture, scenes, starts
from bench.document import with_block
from bench.machine import ROOT, machine, run_line, when_and_what
from bench.tables import markdown, percent

PAGE = ROOT / "docs" / "autoscaling.md"
PICTURE = ROOT / "docs" / "images" / "autoscaling.png"
FOUND = ROOT / "bench" / "results" / "autoscaling.json"
SHOWN = "GPU, 3 k/s"
Row = Mapping[str, Any]


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A few days alone; writes nothing.")] = False,
) -> None:
    """Simulates some hundred days (a minute), measures how long processes start, and writes tables and a picture."""
    console = Console(highlight=False)
    scaled, found = manifests.scaled_object(), scenes.workers(results.read())
    chosen = scenes.scenes([SHOWN] if quick else list(found), scaled.target)
    with console.status("Measuring how long a gateway and a worker take to start ..."):
        begun = starts.measure(1 if quick else starts.TIMES)
    rows: list[Row] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool, console.status("") as status:
        for each in pool.map(scenes.rower(found, scaled), chosen):
            rows.append(each)
            status.update(f"{len(rows)} of {len(chosen)} days: {each['worker']}, target {each['target']:.0f}")
    said = {"targets": _targets(rows), "down": _down(rows, scaled.target), "starts": _starts(begun)}
    console.print("\n\n".join(said.values()), soft_wrap=True)
    if not quick:
        _publish(said, rows, begun, console)


def _publish(said: Mapping[str, str], rows: Sequence[Row], begun: Mapping[str, float], console: Console) -> None:
    run = {"machine": machine(), **when_and_what(), "repetitions": 1, "starts_s": begun, "days": rows}
    results.write(run, FOUND)
    text = with_block(PAGE.read_text(encoding="utf-8"), "run", f"{run_line(run)}.")
    for name, block in said.items():
        text = with_block(text, name, block)
    PAGE.write_text(text, encoding="utf-8")
    _draw(begun)
    console.print(f"\n{PAGE.relative_to(ROOT)}, {PICTURE.relative_to(ROOT)}, {FOUND.relative_to(ROOT)}")


def _draw(begun: Mapping[str, float]) -> None:
    found = results.read()
    scaled, worker = manifests.scaled_object(), scenes.workers(found)[SHOWN]
    load, start_s = scenes.load_of(worker), scenes.STARTS_S[1]
    day = scenes.simulate(scenes.Scene(SHOWN, start_s, scaled.target), worker, scaled)
    front = gateways.run(load, scenes.request_cpu_s(found), begun["gateway"] + scenes.POD_S, manifests.utilization())
    title = f"{SHOWN} each, ready {start_s:.0f} s after they were asked for, {scaled.target:.0f} entries for each"
    picture.draw(day.samples, front, worker.per_s, title, PICTURE)


def _targets(rows: Sequence[Row]) -> str:
    """Returns the table of targets: for each worker and start, p99, what was slow, and hours against the ideal."""
    cells: dict[tuple[str, float], list[str]] = {}
    for row in rows:
        if row["down"] == "manifest":
            cells.setdefault((row["worker"], row["start_s"]), []).append(_cell(row))
    heads = ["worker", "ready after", *(str(target) for target in scenes.TARGETS)]
    return markdown(heads, [[name, f"{start_s:.0f} s", *found] for (name, start_s), found in cells.items()], left=2)


def _down(rows: Sequence[Row], target: float) -> str:
    """Returns the table of ways to take workers away, at the manifest's target."""
    found = [row for row in rows if row["target"] == target and row["start_s"] == scenes.STARTS_S[1]]
    names = list(dict.fromkeys(row["worker"] for row in found))
    ways = list(dict.fromkeys(row["down"] for row in found))
    cells = {(row["worker"], row["down"]): _cell(row) for row in found}
    return markdown(["taken away", *names], [[way, *(cells[name, way] for name in names)] for way in ways])


def _cell(row: Row) -> str:
    p99 = f"{row['p99_s'] * 1000:.0f} ms" if row["p99_s"] < 1 else f"{row['p99_s']:.1f} s"
    return f"{p99}, {percent(row['slow_share'])}, {row['worker_hours'] / row['ideal_hours']:.1f} ×"


def _starts(begun: Mapping[str, float]) -> str:
    return markdown(["process", "ready after"], [[name, f"{seconds:.1f} s"] for name, seconds in begun.items()])


if __name__ == "__main__":
    typer.run(main)
