"""The tables of `make bench-rerank`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.tables import NONE, format_spread, markdown, median, number, ratio

SERVED, PINNED = "rerank", "pinned"
HOWS = {
    "redbatch": "Redbatch",
    "offline": "offline, sorted by length, without padding",
    "infinity": "Infinity",
    "predict": "`CrossEncoder.predict` of each request",
}
"""Titles of the ways to run the pairs."""

RATIOS = {
    "share_of_offline": "× offline",
    "ratio_to_infinity": "× Infinity",
    "ratio_to_predict": "× `predict`",
}
"""Heads of the columns of ratios, by figure."""


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of the rates, and the one of a single request on one and on two cores."""
    served = [row for row in folded if row["of"]["table"] == SERVED]
    pinned = [row for row in folded if row["of"]["table"] == PINNED]
    return "\n\n".join(make(rows) for rows, make in ((served, _rates), (pinned, _times)) if rows)


def _rates(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        [
            row["of"]["how"],
            str(row["of"]["clients"]) if row["of"]["clients"] else NONE,
            format_spread(row, "pairs_per_s"),
            *(format_spread(row, name, ratio) for name in RATIOS),
            format_spread(row, "p50_s"),
        ]
        for row in rows
    ]
    return markdown(["how", "clients", "pairs/s", *RATIOS.values(), "p50 of a request, s"], cells)


def _times(rows: Sequence[Mapping[str, Any]]) -> str:
    one = next(row for row in rows if row["of"]["workers"] == 1)
    cells = [
        [
            str(row["of"]["workers"]),
            format_spread(row, "p50_s"),
            NONE if row is one else number(median(row, "ratio_to_one")),
        ]
        for row in rows
    ]
    return markdown(["workers, one core each", "p50 of a request, s", "× one worker"], cells, left=0)
