"""Measurement of the answers in a window in the middle of a load."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cost import Snapshot
from bench.measurement import ClosedLoop, measure, measurement_between
from bench.peers.testbed import BareServer
from bench.wrk import GeneratorError

TICKS = "redbatch-ticks 1700000000000000:0 1700000002000000:2000 1700000004000000:2400\n"
PRINTED = f"redbatch 2400 4000000 0 10500 20000 30250 40001\n{TICKS}"
BEGAN_S = 1_700_000_000.0
WRK = """#!/bin/sh
echo "$@" > {log}
now_s=$(date +%s)
echo redbatch 900 1000000 0 1000 2000 3000 4000
echo redbatch-ticks $((now_s - 5))000000:0 $((now_s + 5))000000:1000
"""


def at(seconds: float, cpu_s: float = 0.0) -> Snapshot:
    """Returns a snapshot this many seconds after the start of the load."""
    return Snapshot(BEGAN_S + seconds, {"generator": cpu_s})


def test_a_rate_is_that_of_the_window() -> None:
    """Answers before and after the window do not change the rate or the cost per answer."""
    measured = measurement_between(at(1, cpu_s=2.0), at(3, cpu_s=2.6), PRINTED, clients=10)
    assert measured.requests_per_s == pytest.approx(600)
    assert measured.cost.cpu_us["generator"] == pytest.approx(500)
    assert (measured.first, measured.last) == (990, 2_190)


def test_before_all_clients_have_an_answer_the_first_request_is_the_first() -> None:
    """Requests in flight are not answered, so the index cannot be below 0."""
    assert measurement_between(at(0.005), at(1), PRINTED, clients=10).first == 0


def test_a_load_that_only_failed_is_no_measurement() -> None:
    """The message has the number of failed requests."""
    with pytest.raises(GeneratorError, match="no request was answered: 2400 failed"):
        measurement_between(at(1), at(3), PRINTED.replace("4000000 0", "4000000 2400"), clients=10)
    with pytest.raises(GeneratorError, match="no request was answered: 64 failed"):
        measurement_between(at(1), at(3), "redbatch 0 4000000 64 0 0 0 0\n", clients=10)


def test_a_window_without_an_answer_is_no_measurement() -> None:
    """A server that hangs has no rate and no cost per request."""
    hangs = PRINTED.replace(":2400", ":2000")
    with pytest.raises(GeneratorError, match="in the window"):
        measurement_between(at(2.5), at(3.5), hangs, clients=10)


def test_a_window_that_outlasts_the_load_is_no_measurement() -> None:
    """There is no tick at the end of such a window."""
    with pytest.raises(GeneratorError, match="did not last"):
        measurement_between(at(1), at(4.1), PRINTED, clients=10)


def test_the_load_covers_lead_window_and_tail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their sum is rounded up to whole seconds, as wrk needs it."""
    log = tmp_path / "arguments"
    wrk = tmp_path / "wrk"
    wrk.write_text(WRK.format(log=log), encoding="utf-8")
    wrk.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    loop = ClosedLoop(1, 0.02, lead_s=0.01, warmup_s=0, tail_s=2)
    measured = measure(BareServer("http://127.0.0.1:1/embed"), tmp_path / "bodies", loop)
    assert measured.requests_per_s == pytest.approx(100)
    assert "-c1 -d3s" in log.read_text(encoding="utf-8")
