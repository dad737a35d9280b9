"""The results of the sweep: their file, the table of the documents, and whether they are valid. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.figures import Name, Row, fold, tables
from bench.step import ERRORS
from bench.sweep.grid import DEFAULT, MODEL, ORIGINAL, Setting, ceiling
from bench.sweep.loads import AT_ONCE, BURSTS
from bench.tables import NONE, format_median, format_spread, markdown, number

TABLE = "sweep"
LOADS = (AT_ONCE, BURSTS)
RATE = "requests_per_s"
Record = Mapping[str, Any]


def row(setting: Setting, load: str, figures: Mapping[str, float]) -> Row:
    """Returns the row of one load with one setting."""
    of: dict[str, Name] = {"size": setting.size, "wait": setting.wait, "preferred": setting.preferred, "load": load}
    return Row(TABLE, of, figures)


def problems(rows: Iterable[Row]) -> list[str]:
    """Returns the reasons why the sweep is invalid: failed requests, and rates above the model's formula."""
    reasons = []
    for each in rows:
        setting = setting_of(each.of)
        name = f"{each.of['load']} ({setting.name})"
        if errors := each.figures[ERRORS]:
            reasons.append(f"{name}: {errors:.0f} requests failed")
        if (rate := each.figures[RATE]) > ceiling(setting.size):
            reasons.append(f"{name}: {rate:.1f} requests/s, above the ceiling of {ceiling(setting.size):.1f}")
    return reasons


def as_json(rows: Sequence[Row], machine: Mapping[str, Name], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Returns all results for JSON. `metadata` has the start time and the commit of the last run."""
    return {
        "machine": dict(machine),
        **metadata,
        "repetitions": num_rounds(rows),
        "model": MODEL,
        "problems": problems(rows),
        "rows": tables(fold(rows)).get(TABLE, []),
    }


def rows_of(record: Record) -> Iterator[Row]:
    """Yields the rows of each round, as measured."""
    for each in record["rows"]:
        figures = each["figures"]
        for index in range(len(figures[RATE]["runs"])):
            yield Row(TABLE, each["of"], {name: figure["runs"][index] for name, figure in figures.items()})


def num_rounds(rows: Sequence[Row]) -> int:
    """Returns the number of rounds: the maximum number of rows of one setting and load."""
    return max(Counter(tuple(each.of.values()) for each in rows).values(), default=0)


def by_setting(record: Record) -> dict[Setting, dict[str, Mapping[str, Any]]]:
    """Returns the rows of each setting, by load."""
    rows: dict[Setting, dict[str, Mapping[str, Any]]] = {}
    for each in record["rows"]:
        of = each["of"]
        rows.setdefault(setting_of(of), {})[of["load"]] = each
    return rows


def setting_of(of: Mapping[str, Any]) -> Setting:
    """Returns the setting of a row. Files of earlier runs have no preferred sizes."""
    return Setting(int(of["size"]), str(of["wait"]), str(of.get("preferred", "")))


def table(record: Record) -> str:
    """Returns a row for each setting: first the three original pairs and the default, in bold."""
    settings = by_setting(record)
    known = [setting for setting in (*ORIGINAL, DEFAULT) if setting in settings]
    rest = [setting for setting in settings if setting not in known]
    lines = [_line(setting, settings[setting], bold=setting in known) for setting in (*known, *rest)]
    heads = ("size", "wait", "ceiling/s", *_heads("at once"), "share", *_heads("bursts"))
    return markdown(heads, lines, left=0)


def _heads(load: str) -> list[str]:
    return [f"{load}: req/s", "p50 ms", "p95 ms", "p99 ms"]


def _line(setting: Setting, loads: Mapping[str, Mapping[str, Any]], *, bold: bool) -> list[str]:
    mark = "**" if bold else ""
    wait = setting.wait if setting.wait == "auto" else f"{setting.wait} ms"
    cells = [f"{mark}{setting.displayed_size}{mark}", f"{mark}{wait}{mark}", number(ceiling(setting.size))]
    for load in LOADS:
        measured = loads.get(load)
        cells += [NONE] * 4 if measured is None else _figures(measured)
        if load == AT_ONCE:
            share = NONE if measured is None else f"{measured['figures'][RATE]['median'] / ceiling(setting.size):.2f}"
            cells.append(share)
    return cells


def _figures(measured: Mapping[str, Any]) -> list[str]:
    return [
        format_spread(measured, RATE),
        *(format_median(measured, name) for name in ("p50_ms",)),
        format_spread(measured, "p95_ms"),
        format_median(measured, "p99_ms"),
    ]
