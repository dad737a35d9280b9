"""The results of the comparison: as a file, as tables for the documents, and as text for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.document import PAGES, write_blocks
from bench.figures import Figure, Row, fold
from bench.machine import ROOT, describe_run, machine
from bench.peers import environment
from bench.peers.catalogue import PEERS
from bench.peers.comparison import CELLS, GATEWAYS, ONE_GATEWAY, REDBATCH, BestConfigurations, Failure, Run, ratios
from bench.results import FOLDER
from bench.tables import NONE, markdown, number
from shared.process.version import __version__

PATH = FOLDER / "peers.json"
BLOCK = "peers"
TITLES = {REDBATCH: "Redbatch", **{peer.name: peer.title for peer in PEERS}}
HEADS = {
    "null-1": "null, 1 client",
    "null-64": "null, 64 clients",
    "null-256": "null, 256 clients",
    "short-64": "short texts, 64 clients",
    "mixed-64": "mixed texts, 64 clients",
}
TRIAL = 0
Results = Mapping[str, Any]


def as_json(
    runs: Sequence[Run], failures: Iterable[Failure], choice: BestConfigurations, run: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns all results as JSON values. `run` has the start time, the commit and the number of rounds."""
    rounds = [run for run in runs if run.round != TRIAL]
    return {
        "machine": machine(),
        **run,
        "versions": {REDBATCH: __version__, **{peer.name: _version(peer.folder, peer.package) for peer in PEERS}},
        "rows": _rows(rounds),
        "ratios": [
            {"server": server, "cell": cell, **Figure(values).as_json()}
            for (server, cell), values in ratios(rounds, choice).items()
        ],
        "choice": [{"server": server, "cell": cell, "configuration": name} for (server, cell), name in choice.items()],
        "trials": _rows(run for run in runs if run.round == TRIAL),
        "failures": [
            {
                "server": each.server,
                "configuration": each.configuration,
                "model": each.model,
                "round": each.round,
                "reason": each.reason.replace(str(ROOT), "."),
            }
            for each in failures
        ],
    }


def write(results: Results, path: Path) -> None:
    """Writes results as indented JSON, and creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def document(results: Results, pages: Sequence[Path] = PAGES) -> None:
    """Writes the tables into their block of the pages. Raises MissingBlockError."""
    write_blocks({BLOCK: tables(results)}, pages)


def tables(results: Results) -> str:
    """Returns the text of the document: rates, ratios to Redbatch, trials and failures."""
    facts = results["machine"]
    rates = (
        f"{facts['cpu']}, {facts['cores']} cores; {describe_run(results)}. "
        "Requests per second, with the median latency in ms in brackets:"
    )
    times = (
        "Redbatch's rate divided by each server's: median, minimum and maximum of the rounds "
        "(256 clients: Redbatch with two gateways):"
    )
    parts = [rates, rate_table(results)]
    if results["ratios"]:
        parts += [times, ratio_table(results)]
    if results["trials"]:
        parts += [
            "The configurations tried before the rounds; in each column, the best of each server is compared:",
            trial_table(results),
        ]
    if results["failures"]:
        parts += ["Failures:", failure_list(results)]
    return "\n\n".join(parts)


def text(results: Results) -> str:
    """Returns the same for a terminal, where Markdown tables are readable enough."""
    return tables(results)


def rate_table(results: Results) -> str:
    """Returns a table with a row for each server: the median of its best configuration in each cell."""
    rows = {(row["of"]["server"], row["of"]["configuration"], row["of"]["cell"]): row for row in results["rows"]}
    best = {(each["server"], each["cell"]): each["configuration"] for each in results["choice"]}
    cells = _cells(results)
    lines = []
    for name in _names(results):
        for line in _lines(name, cells):
            places = [(name, line.get(cell) or best.get((name, cell), ""), cell) for cell in cells]
            entries = [_entry(rows.get(place)) for place in places]
            lines.append([_title(name, results, line), *entries])
    return markdown(["", *(HEADS[cell] for cell in cells)], lines)


def ratio_table(results: Results) -> str:
    """Returns a table with a row for each peer."""
    by_place = {(each["server"], each["cell"]): each for each in results["ratios"]}
    cells = _cells(results)
    lines = [
        [TITLES[name], *(_times(by_place.get((name, cell))) for cell in cells)]
        for name in _names(results)
        if name != REDBATCH
    ]
    return markdown(["", *(HEADS[cell] for cell in cells)], lines)


def trial_table(results: Results) -> str:
    """Returns a table with a row for each configuration of each peer."""
    cells = _cells(results)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in results["trials"]:
        of = row["of"]
        rows.setdefault((of["server"], of["configuration"]), {})[of["cell"]] = row
    lines = [
        [TITLES[server], configuration, *(_entry(entries.get(cell)) for cell in cells)]
        for (server, configuration), entries in rows.items()
    ]
    return markdown(["", "configuration", *(HEADS[cell] for cell in cells)], lines, left=2)


def failure_list(results: Results) -> str:
    """Returns a line for each failure: the first line of its reason, and the last line of the server's log."""
    lines = []
    for each in results["failures"]:
        log = [line.strip() for line in each["reason"].splitlines() if line.strip()]
        message = f"{log[0]}: `{log[-1]}`" if len(log) > 1 else "".join(log)
        details = ", ".join(filter(None, (each["configuration"], each["model"])))
        when = f"round {each['round']}" if each["round"] else "before the rounds"
        lines.append(f"- {TITLES[each['server']]}{f' ({details})' if details else ''}, {when}: {message}")
    return "\n".join(lines)


def _rows(runs: Iterable[Run]) -> list[dict[str, object]]:
    rows = [
        Row("", {"server": run.server, "configuration": run.configuration, "cell": run.cell}, run.figures)
        for run in runs
    ]
    return [each.as_json() for each in fold(rows)]


def _names(results: Results) -> list[str]:
    """Returns the servers with results or failures, in the order of the catalogue."""
    names = {row["of"]["server"] for row in results["rows"]} | {each["server"] for each in results["failures"]}
    return [name for name in TITLES if name in names]


def _cells(results: Results) -> list[str]:
    names = {row["of"]["cell"] for row in (*results["rows"], *results["trials"])}
    return [cell.name for cell in CELLS if cell.name in names]


def _lines(name: str, cells: Sequence[str]) -> list[dict[str, str]]:
    """Returns the configurations with a separate line, by cell: those of Redbatch. A peer has one line, of its best."""
    if name != REDBATCH:
        return [{}]
    more = {name for cell, name in GATEWAYS.items() if cell in cells}
    return [dict.fromkeys(cells, ONE_GATEWAY), *(dict.fromkeys(cells, name) for name in sorted(more))]


def _title(name: str, results: Results, line: Mapping[str, str]) -> str:
    details = f", {next(iter(line.values()))}" if line else ""
    product, comma, rest = TITLES[name].partition(",")
    return f"{product} {results['versions'][name]}{comma}{rest}{details}"


def _entry(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return NONE
    figures = row["figures"]
    errors = figures["errors"]["max"]  # the median would hide those of a single round
    failures = f", {errors:,.0f} failed" if errors else ""
    return f"{number(figures['requests_per_s']['median'])} ({number(figures['p50_ms']['median'])}{failures})"


def _times(ratio: Mapping[str, Any] | None) -> str:
    if ratio is None:
        return NONE
    if len(ratio["runs"]) == 1:
        return f"{ratio['median']:.2f}"
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"


def _version(folder: str, package: str) -> str:
    return environment.version(folder, package)
