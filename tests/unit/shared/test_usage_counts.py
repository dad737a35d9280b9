"""What a process counts until it is in Redis, and the sums of a report."""

from __future__ import annotations

import pytest

from shared.usage_counts import (
    ANONYMOUS,
    MAX_LABELS,
    MAX_ROWS,
    OTHER,
    TenantLabels,
    Usage,
    UsageCounts,
    UsageHour,
    UsageKey,
    UsageReport,
)

WEB, SHOP = UsageKey("web", "minilm", "embed"), UsageKey("shop", "minilm", "score")


def test_counts_of_a_row_add_up_until_they_are_taken() -> None:
    """Then they begin again from none, and what was taken stays as it is."""
    counts = UsageCounts()
    counts.row(*WEB).requests += 1
    counts.row(*WEB).tokens += 7
    taken = counts.take()
    counts.row(*WEB).requests += 1
    assert taken == {WEB: Usage(requests=1, tokens=7)}
    assert counts.take() == {WEB: Usage(requests=1)}
    assert counts.take() == {}


def test_tenants_beyond_the_bound_are_counted_as_other() -> None:
    """Nothing is lost, whatever names clients make up; those that have a row keep it."""
    counts = UsageCounts()
    for number in range(2 * MAX_ROWS):
        counts.row(f"t{number}", "minilm", "embed").requests += 1
    counts.row("t0", "minilm", "embed").requests += 1
    counts.row("t0", "other-queue", "embed").requests += 1
    rows = counts.rows()
    assert len(rows) == MAX_ROWS + 2
    assert rows[UsageKey("t0", "minilm", "embed")].requests == 2
    assert rows[UsageKey(OTHER, "minilm", "embed")].requests == MAX_ROWS
    assert rows[UsageKey(OTHER, "other-queue", "embed")].requests == 1


def test_merging_adds_each_count() -> None:
    """Every field of a row is added."""
    counts = UsageCounts()
    usage = Usage(1, 2, 3, 4, 5, 6, 7.5)
    counts.merge({WEB: usage, SHOP: usage})
    counts.merge({WEB: usage})
    assert counts.rows() == {WEB: Usage(2, 4, 6, 8, 10, 12, 15.0), SHOP: usage}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], [{"requests": 6}]),
        (["tenant"], [{"tenant": ANONYMOUS, "requests": 3}, {"tenant": "web", "requests": 3}]),
        (
            ["operation", "day"],
            [
                {"day": "2026-11-26", "operation": "embed", "requests": 3},
                {"day": "2026-11-27", "operation": "embed", "requests": 3},
            ],
        ),
        (["model", "hour"], [{"hour": "23", "model": "minilm", "requests": 3}, {"hour": "24", "model": "minilm"}]),
    ],
)
def test_a_report_sums_by_groups(groups: list[str], expected: list[dict[str, object]]) -> None:
    """Its columns have one order, whatever that of the groups; clients without a tenant have a name."""
    report = UsageReport(groups)
    rows = {UsageKey("", "minilm", "embed"): Usage(requests=1), WEB: Usage(requests=2)}
    report.add(UsageHour("23", "2026-11-26", rows))
    report.add(UsageHour("24", "2026-11-27", {key: Usage(requests=3 - usage.requests) for key, usage in rows.items()}))
    found = report.as_dicts()
    assert len(found) == len(report) == len(expected)
    assert [row | each for row, each in zip(found, expected, strict=True)] == found
    assert list(found[0])[: len(groups)] == list(expected[0])[: len(groups)]


def test_metrics_have_a_bounded_number_of_tenants() -> None:
    """The first ones keep their label."""
    labels = TenantLabels()
    found = [labels.label_of(f"t{number}") for number in range(MAX_LABELS + 5)]
    assert found == [*(f"t{number}" for number in range(MAX_LABELS)), *[OTHER] * 5]
    assert labels.label_of("t0") == "t0"
    assert TenantLabels().label_of("") == ANONYMOUS
