"""`make bench-sweep`: batch sizes and waits on a model whose time is a formula, through a real cluster.

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
from bench.machine import ROOT, machine, run_line, when_and_what
from bench.progress import Watch
from bench.results import SAME, write
from bench.rounds import Round
from bench.sweep import picture, report
from bench.sweep.grid import DEFAULT, MODEL, ORIGINAL, Setting, grid
from bench.sweep.loads import QUICK, Extent, Loads
from redbatch.bench.session import CannotConnect
from redbatch.up.local_redis import LocalRedisError
from redbatch.progress import as_time
from redbatch.tune.testbed import Stand, StandError

PATH = ROOT / "bench" / "results" / "sweep.json"
QUICK_PATH = ROOT / ".bench" / "sweep-quick.json"
INVALID_PATH = ROOT / ".bench" / "sweep-invalid.json"
BLOCK = "sweep"
PICTURE = "sweep.png"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Four settings, once: does it work? No document.")] = False,
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds; the median is what counts.")] = 3,
    add: Annotated[bool, typer.Option("--add", help="Add the rounds to those of this machine and commit.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the results here, and no document.")] = None,
) -> None:
    """Measures, and exits with 1 when a figure is one that the model's formula does not allow: no tables then."""
    whole = out or (QUICK_PATH if quick else PATH)
    settings = [*ORIGINAL, DEFAULT] if quick else grid()
    extent = QUICK if quick else Extent(rounds=repetitions)
    began, beginning = time.monotonic(), when_and_what()
    before = earlier(whole, beginning) if add else []
    try:
        rows = measure(settings, extent, report.rounds_in(before))
    except (StandError, LocalRedisError, CannotConnect) as error:
        sys.exit(f"bench-sweep: {error}")
    found = report.as_json([*before, *rows], machine(), beginning)
    path = INVALID_PATH if found["problems"] and whole == PATH else whole
    write(found, path)
    print(f"{report.table(found)}\n\n{as_time(time.monotonic() - began)}; results in {path}")
    if path == PATH:
        publish(found)
    for text in found["problems"]:
        print(f"INVALID: {text}")
    sys.exit(1 if found["problems"] else 0)


def earlier(path: Path, beginning: Mapping[str, str]) -> list[Row]:
    """Returns what this machine has measured of this commit before; nothing when it was another one."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    mine = machine()
    same = all(found["machine"].get(name) == mine.get(name) for name in SAME) and found["commit"] == beginning["commit"]
    return list(report.rows_of(found)) if same else []


def measure(settings: Sequence[Setting], extent: Extent, first: int = 0) -> list[Row]:
    """Runs all settings in rounds, each with a worker of its own, and returns the rows. `first` numbers the rounds.

    Raises:
        StandError: a process of the cluster cannot run.
        LocalRedisError: there is no Redis server.
        CannotConnect: the gateway is gone.
    """
    rows = []
    planned_s = extent.rounds * len(settings) * extent.cell_s
    with Watch(planned_s) as watch, Stand({"model": MODEL}) as stand:
        loads = Loads(stand.url)
        for number in range(extent.rounds):
            for setting in Round(number, extent.rounds).turns(settings):
                watch.begin(extent.cell_s)
                watch.say(f"round {number + 1} of {extent.rounds}: {setting.name}")
                stand.serve(setting.given)
                rows += [
                    report.row(setting, name, loads.put(load)) for name, load in extent.loads(first + number).items()
                ]
    return rows


def publish(found: report.Found) -> None:
    """Writes table and picture into the document."""
    text = document.PATH.read_text(encoding="utf-8")
    document.PATH.write_text(document.with_block(text, BLOCK, block(found)), encoding="utf-8")
    document.IMAGES.mkdir(parents=True, exist_ok=True)
    picture.draw(found, document.IMAGES / PICTURE)


def block(found: report.Found) -> str:
    """Returns what the document says."""
    facts = found["machine"]
    return f"{facts['cpu']}, {facts['cores']} cores; {run_line(found)}:\n\n{report.table(found)}"


if __name__ == "__main__":
    typer.run(main)
