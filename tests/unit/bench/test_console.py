"""The cost of viewers of the console: their pace, the figures, the table."""

from __future__ import annotations

import re
from typing import Any

import pytest

from api.pages.routes import FOLDER
from bench.cluster import ClusterError
from bench.console import (
    BLOCK,
    IDLE,
    LOADED,
    MIN_WAIT_S,
    NONE,
    OTHER,
    OWN,
    P50,
    P99,
    PANELS_S,
    POLL_S,
    POLLS,
    SPREAD_S,
    change_of_latency,
    cost_of_a_viewer,
    figures,
    table,
    wait_s,
)
from bench.document import PAGES
from bench.figures import Row, fold

MEASURED: dict[str, Any] = {"latency_ms": {"p50": 1.5, "p99": 4.0}, "errors": {}}


def folded() -> list[dict[str, Any]]:
    """Returns rows of two rounds, with 50 viewers of both clusters and without."""
    measured = {OWN: ((60.0, 6.0), (120.0, 12.0)), OTHER: ((10.0, 5.0), (20.0, 8.0)), NONE: ((10.0, 4.0), (20.0, 7.0))}
    rows = [
        Row(BLOCK, {"viewers": 50, "watched": place}, {POLLS: 50, IDLE: idle, LOADED: 90, P50: 2, P99: p99_ms})
        for place, runs in measured.items()
        for idle, p99_ms in runs
    ]
    return [each.as_json() for each in fold(rows)]


def test_viewers_ask_as_often_as_the_page() -> None:
    """The page's script has the same times."""
    script = (FOLDER / "static" / "console.js").read_text(encoding="utf-8")
    times = {name: float(value) / 1000 for name, value in re.findall(r"^const (\w+_MS) = (\d+);", script, re.MULTILINE)}
    assert (times["POLL_MS"], times["RETRY_MS"], times["SPREAD_MS"]) == (POLL_S, MIN_WAIT_S, SPREAD_S)
    for name, interval_s in PANELS_S.items():
        panel = (FOLDER / "static" / f"console_{name}.js").read_text(encoding="utf-8")
        assert f"const POLL_MS = {1000 * interval_s:.0f};" in panel
        assert f'poll("/console/{name}", POLL_MS, show)' in panel
    for age_s, soonest_s in ((0, 1.0), (0.25, 0.75), (0.75, 0.5)):
        assert soonest_s <= wait_s(age_s) <= soonest_s + SPREAD_S


def test_failed_requests_are_an_error() -> None:
    """Latencies of the others would be those of a lower rate."""
    window = {"ms_per_s": 10.0, POLLS: 50.0}
    assert figures(window, {"ms_per_s": 200.0, POLLS: 49.0}, MEASURED) == {
        POLLS: 50.0,
        IDLE: 10.0,
        LOADED: 200.0,
        P50: 1.5,
        P99: 4.0,
        "errors": 0.0,
    }
    with pytest.raises(ClusterError, match="3 requests failed"):
        figures(window, window, MEASURED | {"errors": {"timeout": 1, "no_answer": 2}})


def test_a_viewer_costs_the_difference() -> None:
    """That of each round, divided by the viewers; the table has the row without viewers first."""
    assert "1.50 ms of CPU per second (1.00 to 2.00)" in cost_of_a_viewer(folded())
    _, _, *rows, _, line = table(folded()).splitlines()
    firsts = [[each.strip() for each in row.split("|")[1:3]] for row in rows]
    assert firsts == [["0", "–"], ["50", OTHER], ["50", OWN]]
    assert line.startswith(f"By these, {cost_of_a_viewer(folded())}; ")


def test_latency_is_compared_with_viewers_of_another_cluster() -> None:
    """These take the cores that all share, but not the gateway: the ratio is that of each round."""
    assert "p99 is 1.35 (1.20 to 1.50) times" in change_of_latency(folded())


def test_the_page_of_measurements_has_its_block() -> None:
    """A run writes its table there."""
    assert sum(page.read_text(encoding="utf-8").count(f"<!-- bench:{BLOCK} -->") for page in PAGES) == 1
