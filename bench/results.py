"""The files of results, under bench/results/, which is not in the repository: each benchmark writes its own there.

In the one of `make bench` each part has an entry, so that a run of one part replaces only this entry.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.figures import FoldedRow, Name, Row, fold
from bench.limit import MAX_SHARE, is_possible
from bench.machine import ROOT
from bench.step import ERRORS

FOLDER = ROOT / "bench" / "results"
PATH = FOLDER / "bench.json"
MACHINE_KEYS = ("cpu", "cores")
Results = dict[str, Any]


class MissingResultsError(LookupError):
    """A file of results lacks what a run needs; the message says which command measures it."""


def problems(rows: Iterable[Row]) -> list[str]:
    """Returns the reasons why a run is invalid: failed requests, and serving that is faster than the offline limit.

    One failed request in any round is enough. Of a share, the median over the rounds is judged, as it is published: the
    machine's speed changes between the limit and the measurement compared with it, in one of many rounds by more than
    MAX_SHARE allows.
    """
    reasons = []
    for row in fold(rows):
        if (errors := _over_rounds(row, ERRORS, sum)) > 0:
            reasons.append(f"{label(row)}: {errors:.0f} requests failed")
        if not is_possible(share := _over_rounds(row, "share_of_side_by_side", statistics.median)):
            reasons.append(
                f"{label(row)}: {share:.2f} × side by side, above {MAX_SHARE}: the limit is measured wrongly"
            )
    return reasons


def _over_rounds(row: FoldedRow, name: str, function: Callable[[Sequence[float]], float]) -> float:
    return function(row.figures[name].runs) if name in row.figures else 0.0


def label(row: FoldedRow) -> str:
    """Returns the name of a row for messages."""
    return f"{row.table} ({', '.join(f'{name} {value}' for name, value in row.of.items())})"


def read(path: Path = PATH) -> Results:
    """Returns the results of earlier runs; no parts if the file does not exist."""
    if not path.exists():
        return {"machine": {}, "parts": {}}
    results: Results = json.loads(path.read_text(encoding="utf-8"))
    return results


def require_parts(results: Results, names: Iterable[str], purpose: str) -> None:
    """Raises MissingResultsError unless the results of `make bench` contain all parts of these names.

    `purpose` begins the message: the work that needs them.
    """
    if missing := [name for name in names if name not in results["parts"]]:
        raise MissingResultsError(
            f"{purpose} needs results of an earlier run: bench/results/{PATH.name} lacks {', '.join(missing)}. "
            f'Run: make bench ARGS="--only {",".join(missing)}"'
        )


def merge(before: Results, machine: Mapping[str, Name], parts: Mapping[str, Any]) -> Results:
    """Returns the results with these parts replaced or added. Parts of another machine are dropped."""
    same = all(before["machine"].get(name) == machine.get(name) for name in MACHINE_KEYS)
    return {"machine": dict(machine), "parts": {**(before["parts"] if same else {}), **parts}}


def write(results: Results, path: Path) -> None:
    """Writes results as indented JSON, and creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
