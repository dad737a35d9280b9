"""Validity of a run, and replacement of parts in the file of results."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.figures import Row
from bench.results import MissingResultsError, merge, problems, read, require_parts, write
from bench.simulation import results as simulation
from bench.simulation.comparison import scenarios
from bench.simulation.setup import DEVICES

HERE: dict[str, str | int | bool] = {"cpu": "fast", "cores": 2, "redis": "7"}


def _part(value: float) -> dict[str, Any]:
    return {"tables": {"t": [{"of": {}, "figures": {"x": {"median": value}}}]}}


def test_a_run_is_invalid_if_serving_exceeds_the_limit() -> None:
    """The reason has the row and its share; a share within the drift of the limit is valid."""
    rows = [
        Row("real", {"clients": clients}, {"share_of_side_by_side": 0.97 + clients / 1_000}) for clients in (1, 50, 100)
    ]
    assert problems(rows) == ["real (clients 100): 1.07 × side by side, above 1.03: the limit is measured wrongly"]


def test_a_share_counts_by_its_median() -> None:
    """A limit measured in a slow moment makes the share of one round too large; two of three make the run invalid."""

    def rounds(*shares: float) -> list[Row]:
        return [Row("real", {"clients": 1}, {"share_of_side_by_side": share}) for share in shares]

    assert problems(rounds(0.98, 1.2, 0.97)) == []
    assert len(problems(rounds(0.98, 1.2, 1.04))) == 1


def test_a_run_is_invalid_if_requests_failed() -> None:
    """One failed request in any round is enough."""
    rows = [Row("null", {"clients": clients}, {"errors": 0.0}) for clients in (1, 64) for _ in range(2)]
    rows.append(Row("null", {"clients": 64}, {"errors": 1.0}))
    assert problems(rows) == ["null (clients 64): 1 requests failed"]


def test_a_part_replaces_only_itself() -> None:
    """The other parts stay, unless they are from another machine."""
    before = {"machine": HERE, "parts": {"a": _part(1), "b": _part(2)}}
    newer = merge(before, HERE | {"redis": "8"}, {"b": _part(3)})
    assert newer == {"machine": HERE | {"redis": "8"}, "parts": {"a": _part(1), "b": _part(3)}}
    assert merge(before, HERE | {"cpu": "slow"}, {"b": _part(3)})["parts"] == {"b": _part(3)}


def test_written_results_are_read_back(tmp_path: Path) -> None:
    """Writing creates the folder; without a file there are no parts."""
    path = tmp_path / "results" / "bench.json"
    assert read(path)["parts"] == {}
    results = merge(read(path), HERE, {"a": _part(1)})
    write(results, path)
    assert read(path) == results


def test_a_run_without_the_results_that_it_needs_names_the_command_that_measures_them(tmp_path: Path) -> None:
    """The message has the missing parts and their purpose; existing parts raise nothing."""
    found = read(tmp_path / "bench.json") | {"parts": {"real": _part(1)}}
    require_parts(found, ["real"], "a picture")
    with pytest.raises(
        MissingResultsError, match=r'^a picture needs .* lacks cost\. Run: make bench ARGS="--only cost"$'
    ):
        require_parts(found, ["real", "cost"], "a picture")


def test_scenarios_that_were_not_simulated_are_counted() -> None:
    """All scenarios of all devices make the picture of the simulation."""
    every = [asdict(scenario) for name in DEVICES for scenario in scenarios(name)]
    assert simulation.num_missing(every) == 0
    assert simulation.num_missing(every[2:]) == 2
