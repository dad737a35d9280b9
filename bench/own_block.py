"""The end of a benchmark that has a block of docs/performance.md, and a file of results, to itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import document
from bench.figures import Row, fold
from bench.machine import ROOT, machine, run_line, when_and_what
from bench.results import write
from redbatch.progress import format_duration

Table = Callable[[Sequence[Mapping[str, Any]]], str]


class OwnBlock(NamedTuple):
    """Where the figures of a benchmark go, and what makes a table of them.

    A quick run is to see that it works: its results lie under .bench, and no document changes.
    """

    name: str
    table: Table
    quick: bool

    @property
    def path(self) -> Path:
        """The file of results."""
        if self.quick:
            return ROOT / ".bench" / f"{self.name}-quick.json"
        return ROOT / "bench" / "results" / f"{self.name}.json"


class Begun(NamedTuple):
    """When a run began, on the monotonic clock and for people, and of which commit it is."""

    at: float
    told: Mapping[str, str]


def begin() -> Begun:
    """Notes the beginning of a run."""
    return Begun(time.monotonic(), when_and_what())


def publish(block: OwnBlock, begun: Begun, rounds: int, rows: Iterable[Row], **besides: object) -> dict[str, Any]:
    """Writes and prints what was measured, and fills the document's block; returns it, with what is `besides`."""
    folded = [each.as_json() for each in fold(rows)]
    found = {"machine": machine(), **begun.told, "repetitions": rounds, "tables": folded, **besides}
    write(found, block.path)
    table = block.table(folded)
    print(f"{table}\n\n{format_duration(time.monotonic() - begun.at)}")
    if not block.quick:
        text = document.PATH.read_text(encoding="utf-8")
        document.PATH.write_text(
            document.with_block(text, block.name, f"{run_line(found)}.\n\n{table}"), encoding="utf-8"
        )
    return found
