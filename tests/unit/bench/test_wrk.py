"""The output of wrk, and the bodies that it sends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import wrk
from bench.wrk import GeneratorError, LoadResult, find_wrk, parse, parse_ticks, write_mix
from redbatch.bench.texts import built_in_texts

PRINTED = """Running 4s test @ http://127.0.0.1:8080/embed
  1 threads and 64 connections
  1234 requests in 4.00s, 5.00MB read
redbatch 1234 2500000 3 10500 20000 30250 40001
redbatch-ticks 1700000000000000:0 1700000000020000:10 1700000000060000:50
"""
BEGAN_S = 1_700_000_000.0


def test_the_line_of_figures_is_read() -> None:
    """Requests, seconds, errors and latencies in ms; requests a second follow from them."""
    load = parse(PRINTED)
    assert load == LoadResult(1234, 2.5, 3, 10.5, 20.0, 30.25, 40.001)
    assert load.requests_per_s == pytest.approx(493.6)


def test_the_error_of_wrk_is_reported() -> None:
    """Without a line of figures, the last printed line is the reason; an unknown version of wrk is reported."""
    with pytest.raises(GeneratorError, match="unable to connect"):
        parse("Running\nunable to connect to 127.0.0.1:1 Connection refused\n\n")
    with pytest.raises(GeneratorError, match="nothing"):
        parse("")
    with pytest.raises(GeneratorError, match="9 latencies of 10 requests"):
        parse("redbatch-error 9 latencies of 10 requests: another wrk than this script knows\n")


def test_a_missing_wrk_is_reported_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message has the command that installs it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GeneratorError, match="apt install wrk"):
        find_wrk()


def test_ticks_give_the_number_of_requests_sent_by_a_time() -> None:
    """The number is interpolated between two ticks; outside of them it is unknown."""
    ticks = parse_ticks(PRINTED)
    assert ticks.sent_by(BEGAN_S + 0.010) == pytest.approx(5, abs=0.01)
    assert ticks.sent_by(BEGAN_S + 0.020) == pytest.approx(10, abs=0.01)
    assert ticks.sent_by(BEGAN_S + 0.030) == pytest.approx(20, abs=0.01)
    for outside_s in (-0.001, 0.061):
        with pytest.raises(GeneratorError, match="did not last"):
            ticks.sent_by(BEGAN_S + outside_s)
    with pytest.raises(GeneratorError, match="did not last"):
        parse_ticks("redbatch 0 1 0 0 0 0 0").sent_by(BEGAN_S)


def test_bodies_are_the_texts_that_redbatch_bench_sends(tmp_path: Path) -> None:
    """The file has one JSON body per line, in the order of the mix; the seed determines the texts."""
    lines = write_mix("mixed", tmp_path, count=5).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"text": texts[0]} for texts in built_in_texts("mixed", 1, 1)[:5]]
    assert write_mix("mixed", tmp_path, seed=2, count=5).read_text(encoding="utf-8").splitlines() != lines


def test_many_connections_get_time_to_open() -> None:
    """The time is longer than the delay of the second retry of a refused connection; a single one needs none."""
    assert wrk.connect_s(1) == 0
    assert wrk.connect_s(64) < 3 < wrk.connect_s(5_000)
