"""Failed and interrupted steps of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench import results, suite
from bench.cluster import ClusterError
from bench.figures import Row
from bench.step import Extent, Step, StepContext
from bench.suite import Findings, measure_all

BEGINNING = {"started": "2026-11-21 10:05", "commit": "abc1234"}


def step(part: str, run: Callable[[StepContext], Sequence[Row]]) -> Step:
    """Returns a step of a part."""
    return Step(part, f"{part}'s step", 1.0, run)


def works(context: StepContext) -> list[Row]:
    """Returns a row with a figure that depends on the round."""
    return [Row("null", {"clients": 1}, {"requests_per_s": 100.0 + context.round.number})]


def fails(context: StepContext) -> list[Row]:
    """Fails in the second round, and in the third round without a message."""
    if context.round.number == 1:
        raise ClusterError("redbatch up (null) did not become ready:")
    if context.round.number == 2:
        raise TimeoutError
    return [Row("redis", {"clients": 1}, {"requests_per_s": 7.0})]


def interrupted(_stage: StepContext) -> list[Row]:
    """Raises KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[[Step, Step], None]:
    """Returns a function that replaces the plan by two steps."""
    return lambda *steps: monkeypatch.setattr(suite, "plan", lambda _extent: list(steps))


def test_a_failed_step_loses_only_its_own_rows(planned: Callable[[Step, Step], None], tmp_path: Path) -> None:
    """Its rows of that round are missing, all other steps are measured, and the run is invalid."""
    planned(step("cost", fails), step("null", works))
    findings = Findings(BEGINNING, Extent(repetitions=3))
    measure_all(findings, ["null", "cost"])
    assert [row.figures["requests_per_s"] for row in findings.rows["null"]] == [100, 101, 102]
    assert len(findings.rows["cost"]) == 1
    problems = [
        "round 2, cost (cost's step): redbatch up (null) did not become ready:",
        "round 3, cost (cost's step): TimeoutError",
    ]
    assert findings.problems == problems
    findings.write(tmp_path / "out.json", replace=True)
    parts = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["parts"]
    assert {name: part["problems"] for name, part in parts.items()} == {"null": [], "cost": problems}


def test_a_part_that_is_not_chosen_is_not_run(planned: Callable[[Step, Step], None]) -> None:
    """It is not in the results either, where it would replace earlier ones."""
    planned(step("cost", fails), step("null", works))
    findings = Findings(BEGINNING, Extent(repetitions=1))
    measure_all(findings, ["null"])
    assert set(findings.rows) == {"null"}
    assert findings.problems == []


def test_a_run_with_a_failed_step_replaces_no_tables(
    planned: Callable[[Step, Step], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its results go to another file, and the failure is reported at once and at the end."""
    planned(step("cost", fails), step("null", works))
    monkeypatch.setattr(suite, "INVALID_PATH", tmp_path / "invalid.json")
    monkeypatch.setattr(suite, "find_wrk", lambda: "wrk")
    monkeypatch.setattr(results, "PATH", tmp_path / "bench.json")
    with pytest.raises(SystemExit) as ended:
        suite.main(quick=False, only="null,cost", repetitions=2, out=None)
    assert ended.value.code == 1
    assert not (tmp_path / "bench.json").exists()
    assert set(json.loads((tmp_path / "invalid.json").read_text(encoding="utf-8"))["parts"]) == {"null", "cost"}
    printed = capsys.readouterr()
    failure = "round 2, cost (cost's step): redbatch up (null) did not become ready:"
    assert f"FAILED: {failure}" in printed.err
    assert f"INVALID: {failure}" in printed.out


def test_an_interrupted_run_keeps_its_results(
    planned: Callable[[Step, Step], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go to a separate file; the results of the last full run stay."""
    planned(step("null", works), step("cost", interrupted))
    monkeypatch.setattr(suite, "PARTIAL_PATH", tmp_path / "partial.json")
    monkeypatch.setattr(suite, "find_wrk", lambda: "wrk")
    with pytest.raises(SystemExit) as ended:
        suite.main(quick=False, only="null,cost", repetitions=1, out=tmp_path / "out.json")
    assert ended.value.code == suite.INTERRUPTED
    assert not (tmp_path / "out.json").exists()
    parts = json.loads((tmp_path / "partial.json").read_text(encoding="utf-8"))["parts"]
    assert set(parts) == {"null"}
    part = parts["null"]
    assert part["tables"]["null"][0]["figures"]["requests_per_s"]["median"] == 100
    assert part["commit"]
