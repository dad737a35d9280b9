"""The results of the comparison: as a file, and as a table for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.results import FOLDER
from bench.simulation.comparison import CLOSED, Effort, Result, Scene, mean, scenes
from bench.simulation.setup import DEVICES

PATH = FOLDER / "simulation.json"
DECIMALS = 4


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the scenes that were written before; none when there is no such file."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["scenes"]
    return found


def merged(before: Iterable[dict[str, Any]], results: Iterable[Result], effort: Effort) -> list[dict[str, Any]]:
    """Returns all scenes, the new results in place of the old ones of the same scene."""
    found = {_key(each): each for each in before}
    for result in results:
        scene = as_dict(result, effort)
        found[_key(scene)] = scene
    return list(found.values())


def num_missing(found: Iterable[dict[str, Any]]) -> int:
    """Returns how many scenes of all devices are not among these."""
    keys = {_key(each) for each in found}
    return sum(_key(asdict(scene)) not in keys for name in DEVICES for scene in scenes(name))


def write(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes them as indented JSON: the same seeds, the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"scenes": found}, indent=1) + "\n", encoding="utf-8")


def as_dict(result: Result, effort: Effort) -> dict[str, Any]:
    """Returns a result as JSON has it."""
    return {
        **asdict(result.scene),
        "effort": asdict(effort),
        "short": _rounded(asdict(result.short)),
        "rival_ms": result.rival_ms,
        "best_ms": result.best_ms,
        "adaptive": _rounded(asdict(mean(result.adaptive))),
        "fixed": {f"{ms:g}": _rounded(asdict(mean(runs))) for ms, runs in result.fixed.items()},
    }


def table() -> Table:
    """Returns the table without rows."""
    made = Table(box=None, pad_edge=False)
    made.add_column("device")
    made.add_column("load")
    for head in ("adaptive: req/s", "p50 ms", "p95 ms", "batch", "wait 0: req/s", "p95 ms", "best fixed: ms", "req/s"):
        made.add_column(head, justify="right")
    made.add_column("p95 ms", justify="right")
    made.add_column("rival: ms", justify="right")
    made.add_column("short by", justify="right")
    return made


def row(result: Result) -> list[str]:
    """Returns the row of a result."""
    mine, none, best = mean(result.adaptive), mean(result.fixed[0.0]), mean(result.fixed[result.best_ms])
    short = result.short
    colour = "red" if short.clear else "green"
    return [
        result.scene.device,
        name(result.scene),
        *(f"{each:,.1f}" for each in (mine.per_s, mine.p50_ms, mine.p95_ms, mine.batch, none.per_s, none.p95_ms)),
        f"{result.best_ms:g}",
        f"{best.per_s:,.1f}",
        f"{best.p95_ms:,.1f}",
        f"{result.rival_ms:g}",
        f"[{colour}]{short.share:.1%} ± {short.error:.1%}",
    ]


def name(scene: Scene) -> str:
    """Names a load for people."""
    if scene.load == CLOSED:
        return f"{scene.level:g} clients"
    return f"{scene.load}, {scene.level:.0%}"


def _key(scene: dict[str, Any]) -> tuple[str, str, float]:
    return scene["device"], scene["load"], float(scene["level"])


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {key: round(value, DECIMALS) for key, value in figures.items()}
