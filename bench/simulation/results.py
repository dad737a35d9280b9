"""The results of the comparison: as a file, and as a table for the console."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.results import FOLDER
from bench.simulation.comparison import CLOSED, Effort, Result, Scenario, mean, scenarios
from bench.simulation.setup import DEVICES

PATH = FOLDER / "simulation.json"
DECIMALS = 4


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the scenarios of the file; none if it does not exist."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["scenes"]
    return rows


def merged(before: Iterable[dict[str, Any]], results: Iterable[Result], effort: Effort) -> list[dict[str, Any]]:
    """Returns all scenarios; new results replace the old ones of the same scenario."""
    by_key = {_key(each): each for each in before}
    for result in results:
        scenario = as_dict(result, effort)
        by_key[_key(scenario)] = scenario
    return list(by_key.values())


def num_missing(rows: Iterable[dict[str, Any]]) -> int:
    """Returns the number of scenarios, of all devices, that are not among `rows`."""
    keys = {_key(each) for each in rows}
    return sum(_key(asdict(scenario)) not in keys for name in DEVICES for scenario in scenarios(name))


def write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes the scenarios as indented JSON. The same seeds give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"scenes": rows}, indent=1) + "\n", encoding="utf-8")


def as_dict(result: Result, effort: Effort) -> dict[str, Any]:
    """Returns a result for JSON."""
    return {
        **asdict(result.scenario),
        "effort": asdict(effort),
        "short": _rounded(asdict(result.shortfall)),
        "rival_ms": result.rival_ms,
        "best_ms": result.best_ms,
        "adaptive": _rounded(asdict(mean(result.adaptive))),
        "fixed": {f"{ms:g}": _rounded(asdict(mean(runs))) for ms, runs in result.fixed.items()},
    }


def table() -> Table:
    """Returns the table without rows."""
    empty = Table(box=None, pad_edge=False)
    empty.add_column("device")
    empty.add_column("load")
    for head in ("adaptive: req/s", "p50 ms", "p95 ms", "batch", "wait 0: req/s", "p95 ms", "best fixed: ms", "req/s"):
        empty.add_column(head, justify="right")
    empty.add_column("p95 ms", justify="right")
    empty.add_column("rival: ms", justify="right")
    empty.add_column("shortfall", justify="right")
    return empty


def row(result: Result) -> list[str]:
    """Returns the row of a result."""
    adaptive, none, best = mean(result.adaptive), mean(result.fixed[0.0]), mean(result.fixed[result.best_ms])
    shortfall = result.shortfall
    color = "red" if shortfall.clear else "green"
    return [
        result.scenario.device,
        name(result.scenario),
        *(f"{each:,.1f}" for each in (adaptive.per_s, adaptive.p50_ms, adaptive.p95_ms, adaptive.batch)),
        *(f"{each:,.1f}" for each in (none.per_s, none.p95_ms)),
        f"{result.best_ms:g}",
        f"{best.per_s:,.1f}",
        f"{best.p95_ms:,.1f}",
        f"{result.rival_ms:g}",
        f"[{color}]{shortfall.share:.1%} ± {shortfall.error:.1%}",
    ]


def name(scenario: Scenario) -> str:
    """Returns the displayed name of a load."""
    if scenario.load == CLOSED:
        return f"{scenario.level:g} clients"
    return f"{scenario.load}, {scenario.level:.0%}"


def _key(scenario: dict[str, Any]) -> tuple[str, str, float]:
    return scenario["device"], scenario["load"], float(scenario["level"])


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {key: round(value, DECIMALS) for key, value in figures.items()}
