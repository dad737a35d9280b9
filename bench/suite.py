"""`make bench`: measures this machine in rounds, and writes what it found into docs/performance.md.

python -m bench.suite [--quick] [--only plumbing,real,cost] [--repetitions 3]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import beyond_http, document, plumbing, real, redis_cost, results
from bench.cluster import ClusterError
from bench.figures import Row, fold, tables
from bench.generator import GeneratorError, find_wrk
from bench.limit import LimitError
from bench.machine import ROOT, machine
from bench.progress import Watch, as_time
from bench.stage import QUICK, Extent, Stage, Step
from redbatch.local_redis import LocalRedisError

PARTS = (plumbing.PART, real.PART, redis_cost.PART)
QUICK_PATH = ROOT / ".bench" / "quick.json"
INVALID_PATH = ROOT / ".bench" / "invalid.json"
Found = dict[str, list[Row]]


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One short round: does it work? Writes no document.")] = False,
    only: Annotated[str, typer.Option(help="Parts, with commas between them.")] = ",".join(PARTS),
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds; the median is what counts.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the results here, and no document.")] = None,
) -> None:
    """Measures and exits with 0, or with 1 when the run is not valid."""
    chosen = only.split(",")
    if unknown := sorted(set(chosen) - set(PARTS)):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(PARTS)}")
    extent = QUICK if quick else replace(Extent(), repetitions=repetitions)
    try:
        find_wrk()
        began = time.monotonic()
        found = measure_all(extent, chosen)
    except (GeneratorError, ClusterError, LimitError, LocalRedisError) as error:
        sys.exit(f"bench: {error}")
    wrong = [text for rows in found.values() for text in results.problems(rows)]
    parts = {part: _part(rows, extent) for part, rows in found.items()}
    path = out or (QUICK_PATH if quick else INVALID_PATH if wrong else results.PATH)
    results.write(results.merged(results.read(path), machine(), parts), path)
    print(f"{as_time(time.monotonic() - began)}; results in {_shown(path)}")
    if path == results.PATH:
        document.write(results.read(path))
        print(f"tables in {_shown(document.PATH)}")
    for text in wrong:
        print(f"INVALID: {text}")
    sys.exit(1 if wrong else 0)


def measure_all(extent: Extent, parts: Sequence[str]) -> Found:
    """Runs all steps in rounds, each round all of them, and returns the rows by part."""
    steps = [step for step in plan(extent) if step.part in parts]
    found: Found = {step.part: [] for step in steps}
    planned_s = extent.repetitions * sum(step.seconds for step in steps)
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as folder, Watch(planned_s) as watch:
        for number in range(extent.repetitions):
            stage = Stage(extent, Path(folder), number, _saying(watch, number, extent.repetitions))
            for step in steps:
                watch.begin(step.seconds)
                found[step.part] += step.run(stage)
    return found


def plan(extent: Extent) -> list[Step]:
    """Returns the steps of one round."""
    return [step for module in (plumbing, real, redis_cost, beyond_http) for step in module.steps(extent)]


def _part(rows: Sequence[Row], extent: Extent) -> dict[str, Any]:
    folded = tables(fold(rows))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "repetitions": extent.repetitions,
        "problems": results.problems(rows),
        "tables": folded,
    }


def _saying(watch: Watch, number: int, repetitions: int) -> Callable[[str], None]:
    return lambda text: watch.say(f"round {number + 1} of {repetitions}: {text}")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    typer.run(main)
