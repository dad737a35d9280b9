"""`make bench-autoscaling`: a day with a tenfold peak under the autoscalers of k8s/, and under others, simulated.

python -m bench.autoscaling [--quick] [--starts] [--seeds 3]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import document, results
from bench.autoscaling import jobs, picture, report, starts
from bench.autoscaling.cluster import NEVER, Scene, simulate
from bench.autoscaling.figures import after_outage, figures
from bench.autoscaling.jobs import Texts
from bench.autoscaling.manifests import Autoscalers, from_manifests, on_cpus
from bench.autoscaling.scenes import CPU, GPU, of_jobs, read_measured, scenes
from bench.autoscaling.traffic import Crowd, arrivals
from bench.autoscaling.variants import Variant, variants
from bench.cluster import ClusterError
from bench.figures import Row, fold
from bench.figures import tables as as_tables
from bench.machine import ROOT, machine, run_line, when_and_what
from redbatch.progress import format_duration

PATH = ROOT / "bench" / "results" / "autoscaling.json"
DOCUMENT = ROOT / "docs" / "autoscaling.md"
PICTURE = ROOT / "docs" / "images" / "autoscaling.png"
SEEDS = 3
SHOWN_SEED = 1


def main(
    quick: Annotated[bool, typer.Option("--quick", help="The chosen day alone; nothing is written.")] = False,
    measure_starts: Annotated[
        bool, typer.Option("--starts", help="Start real processes first (two minutes), for how long they take.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Days of each variant, whose median counts.")] = SEEDS,
    processes: Annotated[int, typer.Option(min=1, help="At once.")] = os.cpu_count() or 1,
) -> None:
    """Simulates, and writes bench/results/autoscaling.json, docs/autoscaling.md's tables and its picture."""
    began_s, told = time.monotonic(), when_and_what()
    console = Console(stderr=True, highlight=False)
    before: Mapping[str, Any] = results.read(PATH)
    taken = _starts(console, anew=measure_starts, before=before)
    measured = read_measured(taken["seconds"])
    with console.status("What one worker does at each load ..."):
        clusters = scenes(measured)
    chosen = from_manifests()
    autoscalers = {CPU: on_cpus(chosen), GPU: chosen}
    todo = list(variants(clusters, autoscalers))
    rows = _run([each for each in todo if not quick or each.table == "day"], seeds, processes, console)
    tables = as_tables(fold(rows))
    if quick:
        for row in tables["day"]:
            print(row["of"], row["figures"])
    else:
        found = {**told, "repetitions": seeds, "starts": taken, "tables": tables}
        found |= _beside(clusters, autoscalers, of_jobs(measured, clusters))
        results.write(found, PATH)
        write(found)
    console.print(format_duration(time.monotonic() - began_s))


def write(found: Mapping[str, Any], path: Path = DOCUMENT, image: Path = PICTURE) -> None:
    """Writes the tables into the document, and the picture."""
    text = path.read_text(encoding="utf-8")
    for name, table in report.tables(found).items():
        text = document.with_block(text, name, table)
    path.write_text(document.with_block(text, "autoscaling-run", f"{run_line(found)}."), encoding="utf-8")
    picture.draw(found, image)


def _starts(console: Console, *, anew: bool, before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the seconds that processes take to be ready, and where: measured now, or when they last were."""
    if not anew and "starts" in before:
        return dict(before["starts"])
    try:
        with console.status(f"Starting {starts.RUNS} gateways and {starts.RUNS} workers, in turns ..."):
            return {"machine": machine(), "seconds": starts.measure_all()}
    except ClusterError as error:
        sys.exit(f"bench.autoscaling: {error}")


def _run(todo: Sequence[Variant], seeds: int, processes: int, console: Console) -> list[Row]:
    days = [(variant, seed) for variant in todo for seed in range(1, variant.times * seeds + 1)]
    found: list[Row] = []
    with ProcessPoolExecutor(processes) as pool, console.status("") as status:
        for row in pool.map(_day, *zip(*days, strict=True)):
            found.append(row)
            status.update(f"{len(found)} of {len(days)} days")
    return found


def _day(variant: Variant, seed: int) -> Row:
    came = arrivals(variant.scene.night_per_s, Crowd(), seed)
    course = simulate(variant.scene, variant.autoscalers, came, seed)
    of = {"device": variant.device, "what": variant.what}
    after = after_outage(course, variant.scene) if variant.scene.outage != NEVER else {}
    return Row(variant.table, of, asdict(figures(course, variant.scene)) | after)


def _beside(
    clusters: Mapping[str, Scene], autoscalers: Mapping[str, Autoscalers], texts: Mapping[str, Sequence[Texts]]
) -> dict[str, Any]:
    """Returns what is no table of days: what is set, what a worker holds, what jobs ask for, and the days' course."""
    workers = {device: each.workers for device, each in autoscalers.items()}
    gateways = autoscalers[GPU].gateways
    return {
        "chosen": {device: each.target for device, each in workers.items()} | {"gateways": gateways.target},
        "held": {device: [float(each) for each in scene.station.held] for device, scene in clusters.items()},
        "jobs": list(jobs.rows(texts, workers, clusters[GPU].settings.inputs_per_entry)),
        "days": {device: _shown(clusters[device], autoscalers[device], device) for device in clusters},
    }


def _shown(scene: Scene, autoscalers: Autoscalers, device: str) -> dict[str, Any]:
    came = arrivals(scene.night_per_s, Crowd(), SHOWN_SEED)
    course = simulate(scene, autoscalers, came, SHOWN_SEED)
    about = f"{report.thresholds(autoscalers.workers)}, ready after {scene.worker_start_s:.0f} s"
    about = about if device == CPU else f"{about} (assumed)"
    bounds = {"workers": autoscalers.workers.most, "gateways": autoscalers.gateways.most}
    return report.day_of(course, scene, about, bounds)


if __name__ == "__main__":
    typer.run(main)
