"""The file of results: one entry for each part, so that a part that ran alone replaces only itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.figures import Name, Row
from bench.limit import ABOVE, is_possible
from bench.stage import ERRORS

PATH = Path(__file__).with_name("results") / "bench.json"
SAME = ("cpu", "cores")
Results = dict[str, Any]


def problems(rows: Iterable[Row]) -> list[str]:
    """Returns why the run is not valid: requests that failed, and serving that would have beaten the model alone."""
    found = []
    for row in rows:
        if (errors := row.figures.get(ERRORS, 0.0)) > 0:
            found.append(f"{label(row)}: {errors:.0f} requests failed")
        if not is_possible(share := row.figures.get("share_of_side_by_side", 0.0)):
            found.append(f"{label(row)}: {share:.2f} × side by side, above {ABOVE}: the limit is measured wrongly")
    return found


def label(row: Row) -> str:
    """Names a row for people."""
    return f"{row.table} ({', '.join(f'{name} {value}' for name, value in row.of.items())})"


def read(path: Path = PATH) -> Results:
    """Returns what was written before; nothing when there is no such file."""
    if not path.exists():
        return {"machine": {}, "parts": {}}
    found: Results = json.loads(path.read_text(encoding="utf-8"))
    return found


def merged(before: Results, machine: Mapping[str, Name], parts: Mapping[str, Any]) -> Results:
    """Returns the results with these parts in place of those of the same names; another machine's are left out."""
    same = all(before["machine"].get(name) == machine.get(name) for name in SAME)
    return {"machine": dict(machine), "parts": {**(before["parts"] if same else {}), **parts}}


def write(results: Results, path: Path) -> None:
    """Writes them as indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
