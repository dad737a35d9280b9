"""`make bench-autoscaling`: simulates a day with a tenfold peak under the autoscalers of k8s/, and under others.

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
from bench.autoscaling import jobs, plot, report, startup_times
from bench.autoscaling.cluster import NO_OUTAGE, Scenario, simulate
from bench.autoscaling.experiments import Experiment, experiments
from bench.autoscaling.figures import after_outage, figures
from bench.autoscaling.jobs import TextMix
from bench.autoscaling.manifests import Autoscalers, from_manifests, on_cpus
from bench.autoscaling.scenarios import CPU, GPU, job_texts, read_measurements, scenarios
from bench.autoscaling.traffic import Crowd, arrivals
from bench.cluster import ClusterError
from bench.figures import Row, fold
from bench.figures import tables as as_tables
from bench.machine import ROOT, describe_run, machine, run_metadata
from redbatch.times import format_duration

PATH = results.FOLDER / "autoscaling.json"
DOCUMENT = ROOT / "docs" / "autoscaling.md"
PICTURE = ROOT / "docs" / "images" / "autoscaling.png"
SEEDS = 3
PICTURE_SEED = 1


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="Simulate only the day of the manifests; write nothing.")
    ] = False,
    measure_starts: Annotated[
        bool, typer.Option("--starts", help="First measure the startup of real processes (two minutes).")
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Simulated days per experiment; the tables have the medians.")
    ] = SEEDS,
    processes: Annotated[int, typer.Option(min=1, help="Parallel processes.")] = os.cpu_count() or 1,
) -> None:
    """Simulates, and writes bench/results/autoscaling.json, and the tables and the picture of docs/autoscaling.md."""
    began_s, metadata = time.monotonic(), run_metadata()
    console = Console(stderr=True, highlight=False)
    try:
        results.require_parts(results.read(), ["real"], "the simulation of autoscaling")
    except results.MissingResultsError as error:
        sys.exit(f"bench.autoscaling: {error}")
    before: Mapping[str, Any] = results.read(PATH)
    startups = _startups(console, measure=measure_starts, before=before)
    measured = read_measurements(startups["seconds"])
    with console.status("Simulating one worker at each load ..."):
        clusters = scenarios(measured)
    chosen = from_manifests()
    autoscalers = {CPU: on_cpus(chosen), GPU: chosen}
    selected = [each for each in experiments(clusters, autoscalers) if not quick or each.table == "day"]
    rows = _run(selected, seeds, processes, console)
    tables = as_tables(fold(rows))
    if quick:
        for row in tables["day"]:
            print(row["of"], row["figures"])
    else:
        record = {**metadata, "repetitions": seeds, "starts": startups, "tables": tables}
        record |= _other_results(clusters, autoscalers, job_texts(measured, clusters))
        results.write(record, PATH)
        write(record)
    console.print(format_duration(time.monotonic() - began_s))


def write(record: Mapping[str, Any], path: Path = DOCUMENT, image: Path = PICTURE) -> None:
    """Writes the tables into the document, and the image file."""
    text = path.read_text(encoding="utf-8")
    for name, table in report.tables(record).items():
        text = document.replace_block(text, name, table)
    path.write_text(document.replace_block(text, "autoscaling-run", f"{describe_run(record)}."), encoding="utf-8")
    plot.draw(record, image)


def _startups(console: Console, *, measure: bool, before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the startup times (s) of processes and their machine: measured now, or those of the earlier results."""
    if not measure and "starts" in before:
        return dict(before["starts"])
    try:
        with console.status(f"Starting {startup_times.RUNS} gateways and {startup_times.RUNS} workers alternately ..."):
            return {"machine": machine(), "seconds": startup_times.measure_all()}
    except ClusterError as error:
        sys.exit(f"bench.autoscaling: {error}")


def _run(selected: Sequence[Experiment], seeds: int, processes: int, console: Console) -> list[Row]:
    days = [(experiment, seed) for experiment in selected for seed in range(1, experiment.seed_factor * seeds + 1)]
    rows: list[Row] = []
    with ProcessPoolExecutor(processes) as pool, console.status("") as status:
        for row in pool.map(_simulate_day, *zip(*days, strict=True)):
            rows.append(row)
            status.update(f"{len(rows)} of {len(days)} days")
    return rows


def _simulate_day(experiment: Experiment, seed: int) -> Row:
    requests = arrivals(experiment.scenario.night_per_s, Crowd(), seed)
    history = simulate(experiment.scenario, experiment.autoscalers, requests, seed)
    of = {"device": experiment.device, "label": experiment.label}
    after = after_outage(history, experiment.scenario) if experiment.scenario.outage != NO_OUTAGE else {}
    return Row(experiment.table, of, asdict(figures(history, experiment.scenario)) | after)


def _other_results(
    clusters: Mapping[str, Scenario], autoscalers: Mapping[str, Autoscalers], texts: Mapping[str, Sequence[TextMix]]
) -> dict[str, Any]:
    """Returns the results beside the tables of days.

    These are the chosen targets, the entries that a worker holds, the workers that jobs ask for, and the time series of
    the chosen days.
    """
    workers = {device: each.workers for device, each in autoscalers.items()}
    gateways = autoscalers[GPU].gateways
    return {
        "chosen": {device: each.target for device, each in workers.items()} | {"gateways": gateways.target},
        "held": {device: [float(each) for each in scenario.profile.occupancy] for device, scenario in clusters.items()},
        "jobs": list(jobs.rows(texts, workers, clusters[GPU].settings.inputs_per_entry)),
        "days": {device: _series(clusters[device], autoscalers[device], device) for device in clusters},
    }


def _series(scenario: Scenario, autoscalers: Autoscalers, device: str) -> dict[str, Any]:
    requests = arrivals(scenario.night_per_s, Crowd(), PICTURE_SEED)
    history = simulate(scenario, autoscalers, requests, PICTURE_SEED)
    about = f"{report.thresholds(autoscalers.workers)}, ready after {scenario.worker_start_s:.0f} s"
    about = about if device == CPU else f"{about} (assumed)"
    bounds = {"workers": autoscalers.workers.max_replicas, "gateways": autoscalers.gateways.max_replicas}
    return report.day_series(history, scenario, about, bounds)


if __name__ == "__main__":
    typer.run(main)
