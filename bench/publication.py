"""Publication of a benchmark with one file of results and one block of the documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import document
from bench.figures import Row, fold
from bench.machine import ROOT, describe_run, machine, run_metadata
from bench.results import FOLDER, write
from redbatch.times import format_duration

Table = Callable[[Sequence[Mapping[str, Any]]], str]


class Publication(NamedTuple):
    """Name of the file and of the block, and the function that formats the table.

    A quick run only shows that the benchmark works: its results go to .bench, and no document changes.
    """

    name: str
    table: Table
    quick: bool

    @property
    def path(self) -> Path:
        """The file of results."""
        if self.quick:
            return ROOT / ".bench" / f"{self.name}-quick.json"
        return FOLDER / f"{self.name}.json"


class RunStart(NamedTuple):
    """Start of a run: `at_s` on the monotonic clock, and the metadata for the results (time and commit)."""

    at_s: float
    metadata: Mapping[str, str]


def start_run() -> RunStart:
    """Returns the start of a run that begins now."""
    return RunStart(time.monotonic(), run_metadata())


def publish(
    publication: Publication, run_start: RunStart, rounds: int, rows: Iterable[Row], **extra: object
) -> dict[str, Any]:
    """Writes, prints and returns the results, with `extra` values, and replaces the block of the document."""
    folded = [each.as_json() for each in fold(rows)]
    results = {"machine": machine(), **run_start.metadata, "repetitions": rounds, "tables": folded, **extra}
    write(results, publication.path)
    table = publication.table(folded)
    print(f"{table}\n\n{format_duration(time.monotonic() - run_start.at_s)}")
    if not publication.quick:
        document.write_blocks({publication.name: f"{describe_run(results)}.\n\n{table}"})
    return results
