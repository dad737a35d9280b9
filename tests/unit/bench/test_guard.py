"""The verdict of a comparison with an earlier commit, and its report."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.cost import Cost
from bench.guard import Comparison, report
from bench.machine import ROOT
from bench.measurement import Measurement
from bench.wrk import LoadResult

LOAD = LoadResult(400, 1.0, 0, 1.0, 2.0, 3.0, 4.0)


def measured(requests_per_s: float, gateway_us: float) -> Measurement:
    """Returns a measurement with this rate, and this CPU of the gateway per request."""
    return Measurement(LOAD, requests_per_s, Cost({"gateway": gateway_us}, {}, 0, 0), 0, 400)


@pytest.mark.parametrize(("rate", "passes"), [(940, False), (960, True)])
def test_a_slower_checkout_fails(rate: float, passes: bool) -> None:
    """The median of the ratios counts, so that one disturbed round of three does not."""
    comparison = Comparison([measured(1_000, 140)] * 3, [measured(rate, 70), measured(rate, 70), measured(100, 70)])
    assert comparison.passes is passes
    *_, cost, verdict = report(comparison, "v0.1.0")
    assert cost.split() == ["gateway,", "µs", "140.0", "70.0", "0.500"]
    assert ("FAILED" in verdict) is not passes


def test_an_unknown_commit_is_an_error_in_words() -> None:
    """No traceback."""
    command = [sys.executable, "-m", "bench.guard", "--against", "no-such-commit"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(("bench-guard: fatal: not a valid object name", "bench-guard: wrk"))
