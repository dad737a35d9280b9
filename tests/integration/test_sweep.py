"""A short sweep: one setting, one round."""

from __future__ import annotations

import pytest

from bench.sweep import report
from bench.sweep.__main__ import measure
from bench.sweep.grid import Setting, ceiling
from bench.sweep.loads import AT_ONCE, BURSTS, Extent

pytestmark = pytest.mark.slow


def test_a_setting_is_measured_and_stays_below_its_maximum() -> None:
    """On real processes nothing fails, and no answer is faster than one input takes."""
    rows = measure([Setting(4, "5")], Extent(rounds=1, requests=40, bursts=1))
    assert [row.of["load"] for row in rows] == [AT_ONCE, BURSTS]
    assert report.problems(rows) == []
    for row in rows:
        assert 0 < row.figures["requests_per_s"] <= ceiling(4)
        assert 5 <= row.figures["p50_ms"] <= row.figures["p95_ms"] <= row.figures["p99_ms"] <= row.figures["max_ms"]
