"""The tables of docs/performance.md."""

from __future__ import annotations

from typing import Any

import pytest

from bench import tables
from bench.figures import Name


def figure(*runs: float) -> dict[str, Any]:
    """A figure, as in the results."""
    return {"median": sorted(runs)[len(runs) // 2], "min": min(runs), "max": max(runs), "runs": list(runs)}


def row(of: dict[str, Name], **figures: dict[str, Any]) -> dict[str, Any]:
    """A row, as in the results."""
    return {"of": of, "figures": {name.replace("__", "."): value for name, value in figures.items()}}


COST = {f"cpu_us__{role}": figure(10.0 * (i + 1)) for i, role in enumerate((*tables.ROLES, "generator"))}
LATENCIES = {"p50_ms": figure(1.234), "p95_ms": figure(12.34), "p99_ms": figure(123.4)}


@pytest.mark.parametrize(
    ("value", "expected"), [(12345.6, "12,346"), (99.94, "99.9"), (1.234, "1.23"), (-12.34, "-12.3")]
)
def test_larger_numbers_have_fewer_decimals(value: float, expected: str) -> None:
    """Numbers from 100 have no decimals, those below 10 have two."""
    assert tables.number(value) == expected


def test_figures_of_several_rounds_have_a_spread() -> None:
    """A single round has no spread, and a missing figure is a dash."""
    measured = row({}, many=figure(3.0, 1.0, 2.0), one=figure(5.0))
    assert tables.format_spread(measured, "many") == "2.00 (1.00 to 3.00)"
    assert tables.format_spread(measured, "one") == "5.00"
    assert tables.format_spread(measured, "none") == "–"


def test_the_null_model_has_a_row_for_each_shape() -> None:
    """The rate has a spread; latencies are medians."""
    measured = row({"gateways": 2, "clients": 256}, requests_per_s=figure(4000.0, 5000.0, 6000.0), **LATENCIES)
    assert tables.null_model({"null": [measured]}).splitlines() == [
        "| clients | gateways | requests/s | p50 ms | p95 ms | p99 ms |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
        "| 256 | 2 | 5,000 (4,000 to 6,000) | 1.23 | 12.3 | 123 |",
    ]


def test_costs_are_summed_without_the_generator() -> None:
    """Of the shapes with 5,000 clients, only the simplest has a row."""
    shapes: list[dict[str, Name]] = [
        {"model": "null", "appendonly": appendonly, "gateways": gateways, "clients": clients}
        for appendonly, gateways, clients in ((False, 1, 5000), (True, 1, 5000), (False, 8, 5000), (False, 1, 64))
    ]
    found = {
        "null": [row({"gateways": 1, "clients": 64}, redis_commands=figure(7.5), **COST)],
        "redis": [row(of, **COST) for of in shapes],
    }
    rows = tables.null_model_cost(found).splitlines()[2:]
    assert rows == [
        "| 64 | 1 | 10.0 | 20.0 | 30.0 | 40.0 | 100 | 50.0 | – | 7.50 | – | – |",
        "| 5,000 | 1 | 10.0 | 20.0 | 30.0 | 40.0 | 100 | 50.0 | – | – | – | – |",
    ]


def test_the_limit_has_a_column_for_each_mix_and_the_best_below() -> None:
    """A method without a figure for a mix has a dash there."""
    found = {
        "limit": [
            row({"mix": "short", "how": "encode"}, texts_per_s=figure(100.0)),
            row({"mix": "short", "how": "sorted"}, texts_per_s=figure(200.0)),
            row({"mix": "mixed", "how": "sorted"}, texts_per_s=figure(50.0)),
        ],
        "best": [
            row(
                {"mix": mix},
                texts_per_s=figure(best),
                tuned_texts_per_s=figure(1.5 * best),
                side_by_side_texts_per_s=figure(2 * best),
            )
            for mix, best in (("short", 200.0), ("mixed", 50.0))
        ],
    }
    assert tables.limit(found).splitlines()[2:] == [
        "| encode | 100 | – |",
        "| sorted | 200 | 50.0 |",
        "| **the limit**: the best of each round, one batch at a time | 200 | 50.0 |",
        "| the best with one batch at a time, tuned or not | 300 | 75.0 |",
        "| the best of all, *side by side* | 400 | 100 |",
    ]


def test_served_rows_have_their_share_of_the_limit() -> None:
    """Shares are ratios, padding is a percentage."""
    measured = row(
        {"mix": "short", "clients": 1},
        requests_per_s=figure(100.0),
        share_of_limit=figure(0.876),
        share_of_tuned=figure(0.825),
        share_of_side_by_side=figure(0.765),
        padding=figure(0.0567),
        batch_inputs=figure(12.3),
        **LATENCIES,
        **COST,
    )
    assert "| short | 1 | 100 | 0.88 | 0.82 | 0.77 | 1.23 | 12.3 | 123 | 5.7% | 12.3 |" in tables.real_model(
        {"real": [measured]}
    )
    assert "| short | 1 | 10.0 | 20.0 |" in tables.real_model_cost({"real": [measured]})


def test_a_single_client_is_compared_with_encode() -> None:
    """The difference is a separate median, not the difference of the medians."""
    figures = {"encode_p50_ms": figure(8.0), "p50_ms": figure(9.5), "difference_ms": figure(1.6)}
    assert "| short | 8.00 | 9.50 | 1.60 |" in tables.single_client(
        {"single-client": [row({"mix": "short"}, **figures)]}
    )


def test_gaps_have_no_row_for_a_single_client() -> None:
    """A single client leaves the engine idle between two requests, which is not a gap."""
    times = {name: figure(2.0) for name in ("batch_ms", "gap_ms", "gap_p50_ms", "gap_p95_ms", "gap_p99_ms")}
    rows = [row({"mix": "short", "clients": clients}, gap_share=figure(0.0123), **times) for clients in (1, 64)]
    expected = ["| short | 64 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 1.2% |"]
    assert tables.gaps({"real": rows}).splitlines()[2:] == expected


def test_the_table_of_processes_leaves_out_the_generator() -> None:
    """If torch was imported in any run, the table says yes."""
    found = {
        "processes": [
            row({"role": "gateway"}, rss_mb=figure(150.0), torch=figure(0.0, 0.0, 1.0), redis_connections=figure(12.0)),
            row({"role": "generator"}, rss_mb=figure(50.0), torch=figure(0.0)),
        ]
    }
    assert tables.processes(found).splitlines()[2:] == ["| gateway | – | 12 | 150 | yes |"]


def test_backends_have_speed_and_cosine() -> None:
    """The cosine is computed from the stored distance."""
    found = row(
        {"backend": "torch", "format": "bfloat16", "with": ""},
        short_texts_per_s=figure(602.0),
        short_speedup=figure(2.114),
        mixed_texts_per_s=figure(301.0),
        mixed_speedup=figure(2.0),
        largest_distance=figure(1.34e-4),
        mean_distance=figure(5.1e-5),
    )
    expected = ["| torch | bfloat16 | – | 602 | 2.11 | 301 | 2.00 | 0.999866 |"]
    assert tables.backends({"backends": [found]}).splitlines()[2:] == expected
