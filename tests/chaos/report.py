"""The table of the faults at the end of a run. It is a plugin, as a run over several processes requires."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tools.blocks import find_block

FAULT = "fault"
"""Name of the property of a test report that holds a row."""

OTHER = "other figures"
COMMON = ("fault", "calls", "lost", "misrouted", "late", "slowest_s")
DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
BLOCK = "chaos"
RUN = pytest.StashKey[Mapping[str, str]]()
UNITS = {"s", "ms", "mb"}
WHOLE = ["tests/chaos"]
"""The arguments of a run of all tests."""

Rows = list[tuple[str, dict[str, Any]]]
"""Rows of figures, each with the name of its test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that writes the table into the documentation."""
    what = "write the table of the faults into docs/reliability.md; of a part of the tests, the rows that they have"
    parser.addoption("--document", action="store_true", help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Records the start time and the commit. Processes that run a part of the tests do not write the table."""
    if config.getoption("--document") and not hasattr(config, "workerinput"):
        from bench.machine import run_metadata  # noqa: PLC0415 - takes a second

        config.stash[RUN] = run_metadata()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Prints the figures of all scenarios; writes those of tests that passed into the documentation if requested."""
    rows = _rows(terminalreporter)
    if not rows:
        return
    table = Table(title="Faults")
    for name in (*COMMON, OTHER):
        table.add_column(name.replace("_", " "), overflow="fold")
    for _, row in rows:
        table.add_row(*_cells(row))
    Console(width=160).print(table)
    if RUN in config.stash:
        is_whole = config.args == WHOLE and not config.getoption("keyword") and exitstatus == pytest.ExitCode.OK
        failed = {report.nodeid for name in ("failed", "error") for report in terminalreporter.stats.get(name, ())}
        if passed := _rows(terminalreporter, failed):
            _write(passed, config.stash[RUN], is_whole=is_whole)
        for nodeid in sorted(failed):
            terminalreporter.write_line(f"It failed, so its rows were not written: {nodeid}")


def _rows(terminalreporter: pytest.TerminalReporter, leave_out: Collection[str] = ()) -> Rows:
    """Returns the figures that tests noted, except those with some ids."""
    ends = {
        report.nodeid: report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
    }
    rows: Rows = [
        (re.sub(r".*::|\[.*", "", nodeid), row)
        for nodeid, report in ends.items()
        for name, row in report.user_properties
        if name == FAULT and isinstance(row, dict) and nodeid not in leave_out
    ]
    return sorted(rows, key=lambda row: _rank(row[1]["fault"]))


def _rank(fault: str) -> list[str | int]:
    """Splits "F10 Redis" into F, 10 and Redis, so that F10 is sorted after F2."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", fault)]


def _cells(row: dict[str, Any]) -> list[str]:
    """Returns the cells of a row; a dash for a figure that was not judged."""
    others = [_format(name, value) for name, value in row.items() if name not in COMMON]
    return [*(str(row.get(name, "–")) for name in COMMON), ", ".join(others)]


def _format(name: str, value: object) -> str:
    """Formats `taken_over_s` and 1.4 as "taken over 1.4 s"."""
    *words, last = name.split("_")
    if isinstance(value, dict):
        value = ", ".join(f"{code} {count:,}" for code, count in value.items()) or "none"
    elif isinstance(value, int):
        value = f"{value:,}"
    unit = f" {last.replace('mb', 'MB')}" if words and last in UNITS else ""
    return f"{' '.join(words if unit else [*words, last])} {value}{unit}"


def _write(rows: Rows, run: Mapping[str, str], *, is_whole: bool) -> None:
    from bench.document import replace_block  # noqa: PLC0415 - takes a second

    text = DOCUMENT.read_text(encoding="utf-8")
    stamp = f"{run['started']} UTC, commit {run['commit']}."
    cells = [[*_cells(row), f"`{test}`"] for test, row in rows]
    block = make_block(cells, stamp) if is_whole else merge_rows(find_block(text, f"bench:{BLOCK}"), cells, stamp)
    DOCUMENT.write_text(replace_block(text, BLOCK, block), encoding="utf-8")


def make_block(rows: Sequence[Sequence[str]], stamp: str) -> str:
    """Returns the time and the commit of a run, and the table with the cells of its rows."""
    from bench.tables import markdown  # noqa: PLC0415 - takes a second

    titles = [name.removesuffix("_s").replace("_", " ") for name in COMMON]
    titles[-1] = "slowest, s"
    return f"{stamp}\n\n{markdown([*titles, OTHER, 'test'], rows)}"


def merge_rows(block: str, rows: Sequence[Sequence[str]], stamp: str) -> str:
    """Returns a block in which the rows of a later run replace those of the same faults, and others are added.

    The block says which tests ran later, and when.
    """
    tests = ", ".join(dict.fromkeys(row[-1] for row in rows))
    lines = block.strip().splitlines()
    stamps = [line for line in lines if line and not line.startswith(("|", f"{tests}: "))]
    earlier = [line[2:-2].split(" | ") for line in lines if line.startswith("|")][2:]
    by_fault = {row[0]: row for row in [*earlier, *rows]}
    merged = [by_fault[fault] for fault in sorted(by_fault, key=_rank)]
    return make_block(merged, "\n".join([*stamps, f"{tests}: {stamp}"]))
