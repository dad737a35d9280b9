"""A report of usage as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json

from rich.console import Group
from rich.text import Text

from redbatch.tables import plain_table
from shared.usage_counts import COUNTS, UsageReport
from shared.usage_hours import UsageRange

HEADINGS = {"cached_tokens": "cached tokens", "device_ms": "device s"}


def as_text(report: UsageReport, hours: UsageRange) -> Group:
    """Returns the hours, and a table; or that nothing was counted. Names may come from anybody: the table escapes them.

    The time of the device is in seconds.
    """
    since, until = hours.names
    if not len(report):
        return Group(Text(f"nothing was counted from {since} to {until}"))
    table = plain_table(*report.groups)
    table.add_columns(*(HEADINGS.get(name, name) for name in COUNTS), justify="right", no_wrap=True)
    for group, usage in report.rows():
        whole = [f"{getattr(usage, name):,}" for name in COUNTS[:-1]]
        table.add_row(*(each or "-" for each in group), *whole, f"{usage.device_ms / 1000:,.3f}")
    return Group(Text(f"From {since} to {until}", style="bold"), table)


def as_json(report: UsageReport) -> str:
    """Returns a line of JSON for each group."""
    return "\n".join(map(json.dumps, report.as_dicts()))


def as_csv(report: UsageReport) -> str:
    """Returns lines of CSV: the headings, and one for each group."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, [*report.groups, *COUNTS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(report.as_dicts())
    return lines.getvalue().rstrip("\n")
