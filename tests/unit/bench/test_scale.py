"""The cost of a request by the number of gateways and workers: figures, verdict, table."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from bench.cluster import ClusterError
from bench.cost import Snapshot
from bench.document import PAGES
from bench.figures import Row, fold
from bench.machine import ROOT
from bench.scale import BLOCK, MAX_GROWTH, figures, growth, table, validate, verdict

MEASURED: dict[str, Any] = {"latency_ms": {"p50": 1.5, "p99": 4.0}, "errors": {"timeout": 2, "no_answer": 1}}
MEASURED |= {"requests": 1_000, "answers_in_window": 980}
START = {"gateway": 1.0, "worker": 2.0, "engine": 3.0, "redis": 4.0}


def later(before: Snapshot, seconds: float, cpu_s: dict[str, float], added: int) -> Snapshot:
    """Returns a snapshot after some seconds, in which the roles used CPU and requests were added."""
    spent = {role: used + cpu_s.get(role, 0.0) for role, used in before.cpu_s.items()}
    return Snapshot(before.at_s + seconds, spent, {"xadd": before.commands.get("xadd", 0) + added, "ping": 7})


def folded(*sums: tuple[float, ...]) -> list[dict[str, Any]]:
    """Returns rows of sizes 1, 2, 4, … with these sums in each round."""
    rows = [
        Row(BLOCK, {"size": 2**i, "rate": "1000"}, {"sum_us": value, "idle_us": 12.5})
        for i, each in enumerate(sums)
        for value in each
    ]
    return [each.as_json() for each in fold(rows)]


def test_the_cpu_is_divided_by_the_requests_that_reached_redis() -> None:
    """Not by the planned ones; idle CPU is divided by the rate, for which it would be spent anyway."""
    first = Snapshot(100.0, START)
    idle = (first, later(first, 4.0, {"gateway": 0.02, "redis": 0.02}, 0))
    begun = later(idle[1], 1.0, {}, 500)
    values = figures(idle, (begun, later(begun, 8.0, {"gateway": 0.4, "worker": 0.2}, 4_000)), MEASURED, 1_000)
    assert values == pytest.approx(
        {
            "cpu_us.gateway": 100,
            "cpu_us.worker": 50,
            "cpu_us.engine": 0,
            "cpu_us.redis": 0,
            "sum_us": 150,
            "idle_us": 10,
            "requests_per_s": 500,
            "p50_ms": 1.5,
            "p99_ms": 4.0,
            "answered_share": 0.98,
            "errors": 3,
        }
    )


@pytest.mark.parametrize(
    ("errors", "answered", "words"),
    [(0, 0.96, None), (2, 1.0, "2 gateways and workers: 2 requests failed"), (0, 0.9, "only 90% .* a lower --rate")],
)
def test_a_cluster_that_does_not_keep_up_is_an_error(errors: float, answered: float, words: str | None) -> None:
    """Its figures would be those of another rate."""
    row = Row(BLOCK, {"size": 2, "rate": "1000"}, {"errors": errors, "answered_share": answered})
    with pytest.raises(ClusterError, match=words) if words else nullcontext():
        validate(row)


def test_a_window_without_requests_is_an_error() -> None:
    """There is nothing to divide by."""
    start = Snapshot(0.0, START)
    with pytest.raises(ClusterError, match="no request reached Redis"):
        figures((start, later(start, 1, {}, 0)), (start, later(start, 1, {}, 0)), MEASURED, 1_000)


def test_growth_is_that_of_each_round() -> None:
    """The largest size over the smallest, whatever the order of the rows and the sizes between them."""
    rows = folded((100, 200), (500, 500), (110, 190))
    assert growth(rows[::-1]) == pytest.approx([1.1, 0.95])


@pytest.mark.parametrize(
    ("ratios", "word"),
    [([1.09], "passed"), ([1.5, 1.0, 1.05], "passed"), ([1.11], "FAILED"), ([1.0, 1.2, 1.3], "FAILED")],
)
def test_the_median_of_the_rounds_decides(ratios: list[float], word: str) -> None:
    """More than 10 % fails; one disturbed round of three does not."""
    assert MAX_GROWTH == 1.1
    assert word in verdict(ratios)


def test_the_table_has_a_row_for_each_size() -> None:
    """In the order of the sizes, although each round begins with another; idle cost is a separate column."""
    rows = [
        {"of": {"size": size, "rate": "1000"}, "figures": folded((100.0 * size, 110.0 * size))[0]["figures"]}
        for size in (8, 1)
    ]
    head, _, *lines = table(rows).splitlines()
    assert "| sum | of it idle |" in head
    assert [line.split("|")[1:3] for line in lines] == [[" 1 ", " 1 "], [" 8 ", " 8 "]]
    assert "105 (100 to 110) | 12.5 |" in lines[0]


def test_the_page_of_measurements_has_its_block() -> None:
    """A run writes its table there."""
    assert sum(page.read_text(encoding="utf-8").count(f"<!-- bench:{BLOCK} -->") for page in PAGES) == 1


def test_a_bad_rate_is_refused_in_words() -> None:
    """Before anything starts."""
    command = [sys.executable, "-m", "bench.scale", "--rate", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "--rate" in ended.stderr
