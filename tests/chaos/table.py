"""The table of what the faults did, at the end of a run: a plugin, since a run over several processes asks for one."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

FAULT = "fault"
"""The name of the property of a test's report under which a row goes."""

COMMON = ("fault", "calls", "lost", "misrouted", "late", "slowest_s")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what the scenes of all tests have found."""
    ends = {
        report.nodeid: report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
    }
    rows: list[Any] = [row for report in ends.values() for name, row in report.user_properties if name == FAULT]
    if not rows:
        return
    table = Table(title="What the faults did")
    for name in (*COMMON, "besides"):
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        besides = ", ".join(f"{name}={value}" for name, value in row.items() if name not in COMMON)
        table.add_row(*(str(row[name]) for name in COMMON), besides)
    Console(width=160).print(table)
