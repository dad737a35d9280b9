"""`make bench-sweep`: measures batch sizes and waits on a real cluster, with a model whose batch time is a formula.

python -m bench.sweep [--quick] [--repetitions 3] [--add]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench import document
from bench.figures import Row
from bench.machine import ROOT, describe_run, machine, run_metadata
from bench.progress import BenchmarkProgress
from bench.results import FOLDER, MACHINE_KEYS, write
from bench.rounds import Round
from bench.sweep import plot, report
from bench.sweep.grid import DEFAULT, MODEL, ORIGINAL, Setting, grid
from bench.sweep.loads import QUICK, Extent, Loads
from redbatch.bench.run import CannotConnectError
from redbatch.times import format_duration
from redbatch.tune.testbed import Testbed, TestbedError
from redbatch.up.local_redis import LocalRedisError

PATH = FOLDER / "sweep.json"
QUICK_PATH = ROOT / ".bench" / "sweep-quick.json"
INVALID_PATH = ROOT / ".bench" / "sweep-invalid.json"
BLOCK = "sweep"
PICTURE = "sweep.png"


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke test: four settings, one round, no document.")
    ] = False,
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds; the table has the medians.")] = 3,
    add: Annotated[bool, typer.Option("--add", help="Add the rounds to those of this machine and commit.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the results to this file, and no document.")] = None,
) -> None:
    """Measures; exits with 1, and writes no document, if a figure is above the maximum of the model's formula."""
    target_path = out or (QUICK_PATH if quick else PATH)
    settings = [*ORIGINAL, DEFAULT] if quick else grid()
    extent = QUICK if quick else Extent(rounds=repetitions)
    began_s, metadata = time.monotonic(), run_metadata()
    before = earlier_rows(target_path, metadata) if add else []
    try:
        rows = measure(settings, extent, report.num_rounds(before))
    except (TestbedError, LocalRedisError, CannotConnectError) as error:
        sys.exit(f"bench-sweep: {error}")
    record = report.as_json([*before, *rows], machine(), metadata)
    path = INVALID_PATH if record["problems"] and target_path == PATH else target_path
    write(record, path)
    print(f"{report.table(record)}\n\n{format_duration(time.monotonic() - began_s)}; results in {path}")
    if path == PATH:
        publish(record)
    for text in record["problems"]:
        print(f"INVALID: {text}")
    sys.exit(1 if record["problems"] else 0)


def earlier_rows(path: Path, metadata: Mapping[str, str]) -> list[Row]:
    """Returns the rows of the file if they are of this machine and this commit; otherwise none."""
    if not path.exists():
        print(f"--add: {path} does not exist, so this run has no earlier rounds. `make bench-sweep` writes them there.")
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    current = machine()
    is_same_run = (
        all(record["machine"].get(name) == current.get(name) for name in MACHINE_KEYS)
        and record["commit"] == metadata["commit"]
    )
    return list(report.rows_of(record)) if is_same_run else []


def measure(settings: Sequence[Setting], extent: Extent, first: int = 0) -> list[Row]:
    """Measures all settings in rounds, each setting with a new worker, and returns the rows.

    `first` is the number of the first round.

    Raises:
        TestbedError: a process of the cluster cannot run.
        LocalRedisError: there is no Redis server.
        CannotConnectError: the gateway does not respond.
    """
    rows = []
    planned_s = extent.rounds * len(settings) * extent.cell_s
    with BenchmarkProgress(planned_s) as bar, Testbed({"model": MODEL}) as testbed:
        loads = Loads(testbed.url)
        for number in range(extent.rounds):
            for setting in Round(number, extent.rounds).rotate(settings):
                bar.begin(extent.cell_s)
                bar.show(f"round {number + 1} of {extent.rounds}: {setting.name}")
                testbed.start_worker(setting.worker_settings)
                rows += [
                    report.row(setting, name, loads.run(load)) for name, load in extent.loads(first + number).items()
                ]
    return rows


def publish(record: report.Record) -> None:
    """Writes the table into the document, and the picture beside it."""
    document.write_blocks({BLOCK: block(record)})
    plot.draw(record, document.IMAGES / PICTURE)


def block(record: report.Record) -> str:
    """Returns the block of the document."""
    facts = record["machine"]
    return f"{facts['cpu']}, {facts['cores']} cores; {describe_run(record)}:\n\n{report.table(record)}"


if __name__ == "__main__":
    typer.run(main)
