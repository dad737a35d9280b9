"""`make bench`: measures this machine in rounds, and writes the results into docs/performance.md.

python -m bench.suite [--quick] [--only null,real,cost,backends] [--repetitions 3]

A failed step is reported and skipped, and the other steps run; such a run replaces no tables. An interrupted run
replaces none either, and keeps its results so far in a separate file.
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

from bench import backends, document, gateway_overhead, null_model, real_model, redis_cost, results
from bench.failures import FAILURES, reason
from bench.figures import Row, fold, tables
from bench.flags import parse_names
from bench.machine import ROOT, machine, run_metadata
from bench.progress import BenchmarkProgress
from bench.rounds import Round
from bench.step import QUICK, Extent, Step, StepContext
from bench.wrk import GeneratorError, find_wrk
from redbatch.times import format_duration
from redbatch.up.local_redis import LocalRedisError, find_server

PARTS = (null_model.PART, real_model.PART, redis_cost.PART, backends.PART)
QUICK_PATH = ROOT / ".bench" / "quick.json"
INVALID_PATH = ROOT / ".bench" / "invalid.json"
PARTIAL_PATH = ROOT / ".bench" / "partial.json"
INTERRUPTED = 130


@dataclass(slots=True)
class Findings:
    """Results so far: the metadata of the run, and the rows and failures of each part."""

    metadata: dict[str, str]
    extent: Extent
    rows: dict[str, list[Row]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """The reasons why the run is invalid."""
        return [text for part in self.rows for text in self._problems(part)]

    def write(self, path: Path, *, replace: bool) -> None:
        """Writes the parts into a file of results: merged with those of the file, or replacing it (`replace`)."""
        before = {"machine": {}, "parts": {}} if replace else results.read(path)
        results.write(results.merge(before, machine(), self._parts()), path)

    def _problems(self, part: str) -> list[str]:
        return [*self.failures.get(part, []), *results.problems(self.rows[part])]

    def _parts(self) -> dict[str, Any]:
        run = self.metadata | {"repetitions": self.extent.repetitions}
        return {
            part: run | {"problems": self._problems(part), "tables": tables(fold(rows))}
            for part, rows in self.rows.items()
            if rows or self.failures.get(part)
        }


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
    only: Annotated[str, typer.Option(help="Parts to measure, separated by commas.")] = ",".join(PARTS),
    repetitions: Annotated[int, typer.Option(min=1, help="Number of rounds; the tables have the medians.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the results to this file, and no document.")] = None,
) -> None:
    """Measures, and exits with 0, or with 1 if the run is invalid."""
    chosen = parse_names("--only", only, PARTS)
    extent = QUICK if quick else replace(Extent(), repetitions=repetitions)
    try:
        find_wrk()
        find_server()
    except (GeneratorError, LocalRedisError) as error:
        sys.exit(f"bench: {error}")
    began, findings = time.monotonic(), Findings(run_metadata(), extent)
    try:
        measure_all(findings, chosen)
    except BaseException as error:
        findings.write(PARTIAL_PATH, replace=True)
        print(f"{reason(error)}: the results so far are in {_relative(PARTIAL_PATH)}")
        if isinstance(error, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        raise
    problems = findings.problems
    path = out or (QUICK_PATH if quick else INVALID_PATH if problems else results.PATH)
    findings.write(path, replace=path != results.PATH)
    print(f"{format_duration(time.monotonic() - began)}; results in {_relative(path)}")
    if path == results.PATH:
        _publish(results.read(path))
    for text in problems:
        print(f"INVALID: {text}")
    sys.exit(1 if problems else 0)


def _publish(measured: results.Results) -> None:
    try:
        document.write(measured)
    except results.MissingResultsError as error:
        print(error)
    else:
        print(f"tables in {' and '.join(_relative(page) for page in document.PAGES)}")


def measure_all(findings: Findings, parts: Sequence[str]) -> None:
    """Runs all steps of these parts in each round, and adds their rows and failures to the findings."""
    extent = findings.extent
    steps = [step for step in plan(extent) if step.part in parts]
    findings.rows |= {step.part: [] for step in steps}
    planned_s = extent.repetitions * sum(step.seconds for step in steps)
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as folder, BenchmarkProgress(planned_s) as bar:
        for number in range(extent.repetitions):
            which = Round(number, extent.repetitions)
            context = StepContext(extent, Path(folder), which, _progress_callback(bar, which))
            for step in steps:
                bar.begin(step.seconds)
                try:
                    findings.rows[step.part] += step.run(context)
                except FAILURES as error:
                    failure = f"round {number + 1}, {step.part} ({step.name}): {reason(error)}"
                    findings.failures.setdefault(step.part, []).append(failure)
                    bar.print_line(f"FAILED: {failure}")


def plan(extent: Extent) -> list[Step]:
    """Returns the steps of one round."""
    return [
        step
        for module in (null_model, real_model, redis_cost, gateway_overhead, backends)
        for step in module.steps(extent)
    ]


def _progress_callback(bar: BenchmarkProgress, which: Round) -> Callable[[str], None]:
    return lambda text: bar.show(f"round {which.number + 1} of {which.total}: {text}")


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    typer.run(main)
