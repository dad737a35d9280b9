"""`make bench`: measures this machine in rounds, and writes what it found into docs/performance.md.

python -m bench.suite [--quick] [--only plumbing,real,cost,backends] [--repetitions 3]

A step that fails is told and left out, and what it belongs to goes on; such a run replaces no tables. Neither does one
that is interrupted, which keeps what it has found.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import backends, beyond_http, document, plumbing, real, redis_cost, results
from bench.failures import FAILURES, reason
from bench.figures import Row, fold, tables
from bench.generator import GeneratorError, find_wrk
from bench.machine import ROOT, machine, when_and_what
from bench.progress import Watch
from bench.rounds import Round
from bench.stage import QUICK, Extent, Stage, Step
from redbatch.up.local_redis import LocalRedisError, find_server
from redbatch.progress import as_time

PARTS = (plumbing.PART, real.PART, redis_cost.PART, backends.PART)
QUICK_PATH = ROOT / ".bench" / "quick.json"
INVALID_PATH = ROOT / ".bench" / "invalid.json"
PARTIAL_PATH = ROOT / ".bench" / "partial.json"
INTERRUPTED = 130


@dataclass(slots=True)
class Findings:
    """What was found so far: when it began, and by part its rows and what failed."""

    beginning: dict[str, str]
    extent: Extent
    rows: dict[str, list[Row]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Why the run is not valid."""
        return [text for part in self.rows for text in self._problems(part)]

    def write(self, path: Path, *, alone: bool) -> None:
        """Puts its parts into a file of results: beside those that are there, or `alone`."""
        before = {"machine": {}, "parts": {}} if alone else results.read(path)
        results.write(results.merged(before, machine(), self._parts()), path)

    def _problems(self, part: str) -> list[str]:
        return [*self.failures.get(part, []), *results.problems(self.rows[part])]

    def _parts(self) -> dict[str, Any]:
        run = self.beginning | {"repetitions": self.extent.repetitions}
        return {
            part: run | {"problems": self._problems(part), "tables": tables(fold(rows))}
            for part, rows in self.rows.items()
            if rows or self.failures.get(part)
        }


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
        find_server()
    except (GeneratorError, LocalRedisError) as error:
        sys.exit(f"bench: {error}")
    began, findings = time.monotonic(), Findings(when_and_what(), extent)
    try:
        measure_all(findings, chosen)
    except BaseException as error:
        findings.write(PARTIAL_PATH, alone=True)
        print(f"{reason(error)}: what was found until then is in {_shown(PARTIAL_PATH)}")
        if isinstance(error, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        raise
    wrong = findings.problems
    path = out or (QUICK_PATH if quick else INVALID_PATH if wrong else results.PATH)
    findings.write(path, alone=path != results.PATH)
    print(f"{as_time(time.monotonic() - began)}; results in {_shown(path)}")
    if path == results.PATH:
        document.write(results.read(path))
        print(f"tables in {_shown(document.PATH)}")
    for text in wrong:
        print(f"INVALID: {text}")
    sys.exit(1 if wrong else 0)


def measure_all(findings: Findings, parts: Sequence[str]) -> None:
    """Runs all steps in rounds, each round all of them, and adds what they find."""
    extent = findings.extent
    steps = [step for step in plan(extent) if step.part in parts]
    findings.rows |= {step.part: [] for step in steps}
    planned_s = extent.repetitions * sum(step.seconds for step in steps)
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as folder, Watch(planned_s) as watch:
        for number in range(extent.repetitions):
            which = Round(number, extent.repetitions)
            stage = Stage(extent, Path(folder), which, _saying(watch, which))
            for step in steps:
                watch.begin(step.seconds)
                try:
                    findings.rows[step.part] += step.run(stage)
                except FAILURES as error:
                    failure = f"round {number + 1}, {step.part} ({step.name}): {reason(error)}"
                    findings.failures.setdefault(step.part, []).append(failure)
                    watch.tell(f"FAILED: {failure}")


def plan(extent: Extent) -> list[Step]:
    """Returns the steps of one round."""
    return [step for module in (plumbing, real, redis_cost, beyond_http, backends) for step in module.steps(extent)]


def _saying(watch: Watch, which: Round) -> Callable[[str], None]:
    return lambda text: watch.say(f"round {which.number + 1} of {which.of}: {text}")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    typer.run(main)
