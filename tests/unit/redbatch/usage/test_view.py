"""A report of usage as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json

from rich.console import Console

from redbatch.usage.view import as_csv, as_json, as_text
from shared.usage_counts import Usage, UsageHour, UsageKey, UsageReport
from shared.usage_hours import UsageRange

HOURS = UsageRange(498_813, 498_815)


def report_of(*groups: str) -> UsageReport:
    """Returns a report with two tenants, of which one has refused requests alone."""
    report = UsageReport(groups)
    rows = {
        UsageKey("web", "minilm", "embed"): Usage(1_200, 1, 2, 3_600, 50_000, 70, 1_234.5678),
        UsageKey("", "", ""): Usage(refusals=4),
    }
    report.add(UsageHour("2026-11-26T21:00:00Z", "2026-11-26", rows))
    return report


def text_of(report: UsageReport) -> str:
    """Returns what a wide terminal shows."""
    console = Console(width=160, file=io.StringIO())
    with console.capture() as capture:
        console.print(as_text(report, HOURS))
    return capture.get()


def test_a_table_has_a_row_for_each_group() -> None:
    """With the hours above it; the time of the device in seconds, and a dash for a model that is not known."""
    head, names, *rows = [line.split() for line in text_of(report_of("tenant", "model")).splitlines()]
    assert " ".join(head) == "From 2026-11-26T21:00:00Z to 2026-11-26T23:00:00Z"
    assert names[:5] == ["tenant", "model", "requests", "refusals", "failures"]
    assert rows == [
        ["(anonymous)", "-", "0", "4", "0", "0", "0", "0", "0.000"],
        ["web", "minilm", "1,200", "1", "2", "3,600", "50,000", "70", "1.235"],
    ]


def test_an_empty_report_says_so() -> None:
    """A table without rows would look like an error; CSV still has its headings."""
    assert "nothing was counted from 2026-11-26T21" in text_of(UsageReport(["tenant"]))
    assert as_json(UsageReport(["tenant"])) == ""
    assert as_csv(UsageReport(["tenant"])).startswith("tenant,requests,")


def test_json_and_csv_have_the_same_values() -> None:
    """Milliseconds to three places."""
    report = report_of("hour", "tenant")
    parsed = [json.loads(line) for line in as_json(report).splitlines()]
    assert parsed[1]["hour"] == "2026-11-26T21:00:00Z"
    assert parsed[1]["device_ms"] == 1234.568
    read = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert read == [{name: str(value) for name, value in row.items()} for row in parsed]
