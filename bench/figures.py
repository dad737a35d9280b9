"""Figures of several rounds, folded into medians and spreads. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Name = str | int | bool
DIGITS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """A table row of one round: the table, the keys `of` the row, and the figures by name (names end in units)."""

    table: str
    of: Mapping[str, Name]
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure over all rounds: its value in each, in order."""

    runs: Sequence[float]

    @property
    def median(self) -> float:
        """The median of the runs."""
        return statistics.median(self.runs)

    def as_json(self) -> dict[str, object]:
        """Returns median, spread and runs, each with DIGITS significant digits."""
        named = {"median": self.median, "min": min(self.runs), "max": max(self.runs)}
        return {name: rounded(value) for name, value in named.items()} | {"runs": [rounded(run) for run in self.runs]}


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """A row over all rounds."""

    table: str
    of: Mapping[str, Name]
    figures: Mapping[str, Figure]

    def as_json(self) -> dict[str, object]:
        """Returns keys and figures, without the name of the table."""
        return {"of": dict(self.of), "figures": {name: figure.as_json() for name, figure in self.figures.items()}}


def fold(rows: Iterable[Row]) -> list[FoldedRow]:
    """Returns one row for all rows of a table with the same keys, in the order of their first appearance."""
    groups: dict[tuple[str, tuple[tuple[str, Name], ...]], dict[str, list[float]]] = {}
    for row in rows:
        figures = groups.setdefault((row.table, tuple(row.of.items())), {})
        for name, value in row.figures.items():
            figures.setdefault(name, []).append(value)
    return [
        FoldedRow(table, dict(of), {name: Figure(runs) for name, runs in figures.items()})
        for (table, of), figures in groups.items()
    ]


def tables(folded: Iterable[FoldedRow]) -> dict[str, list[dict[str, object]]]:
    """Returns the rows by table, as JSON values."""
    result: dict[str, list[dict[str, object]]] = {}
    for each in folded:
        result.setdefault(each.table, []).append(each.as_json())
    return result


def rounded(value: float) -> float:
    """Returns a number with DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")
