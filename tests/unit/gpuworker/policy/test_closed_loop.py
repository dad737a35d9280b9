"""Whether answers bring new inputs, and how soon."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.closed_loop import ReturnEstimator

WINDOW_S = 0.020


def cycles(returns: ReturnEstimator, number: int, answered: int, backs_s: list[float], batch_s: float = 0.040) -> None:
    """Plays batches whose inputs come back, each after its time; then the next batch ends."""
    now = 0.0 if returns.ended_at is None else returns.ended_at
    returns.record_batch(now, answered)
    for _ in range(number):
        for back_s in backs_s:
            returns.record_arrivals(now + back_s, 1, WINDOW_S)
        now += batch_s
        returns.record_batch(now, answered)


def test_clients_are_expected_when_they_returned_before() -> None:
    """Eight that always return 2 to 3 ms after the batch: nearly all are expected, at the time of the last."""
    returns = ReturnEstimator()
    cycles(returns, 30, 8, [0.002 + i * 0.001 / 7 for i in range(8)])
    assert returns.share > 0.9
    assert returns.delay_s == pytest.approx(0.003)


def test_late_returns_do_not_count() -> None:
    """If half of them return after the window, half are expected, at the time of those within it."""
    returns = ReturnEstimator()
    cycles(returns, 50, 8, [0.002] * 4 + [WINDOW_S + 0.005] * 4)
    assert returns.share == pytest.approx(0.5, rel=0.05)
    assert returns.delay_s == pytest.approx(0.002)


def test_independent_arrivals_take_the_whole_window() -> None:
    """Poisson arrivals at the rate of the answers: half of them in half that time, spread evenly."""
    rng, returns, now, answered = random.Random(1), ReturnEstimator(), 0.0, 10
    returns.record_batch(now, answered)
    arrival = rng.expovariate(answered / 0.040)
    for _ in range(500):
        while arrival < now + 0.040:
            returns.record_arrivals(arrival, 1, WINDOW_S)
            arrival += rng.expovariate(answered / 0.040)
        now += 0.040
        returns.record_batch(now, answered)
    assert 0.3 < returns.share < 0.7
    assert returns.delay_s > 0.8 * WINDOW_S


def test_one_return_is_not_enough() -> None:
    """After one batch whose answered inputs all came back, few are expected."""
    returns = ReturnEstimator()
    cycles(returns, 1, 8, [0.002] * 8)
    assert returns.share < 0.2


def test_a_longer_delay_is_learned_at_once_and_a_shorter_one_slowly() -> None:
    """One late round is enough to wait longer; one early round is not enough to wait less."""
    returns = ReturnEstimator()
    cycles(returns, 30, 8, [0.002] * 8)
    cycles(returns, 1, 8, [0.010] * 8)
    assert returns.delay_s == pytest.approx(0.010)
    cycles(returns, 1, 8, [0.002] * 8)
    assert returns.delay_s > 0.008
    cycles(returns, 60, 8, [0.002] * 8)
    assert returns.delay_s == pytest.approx(0.002, rel=0.1)


def test_clients_that_have_left_are_forgotten() -> None:
    """Forty batches after the last return, no input is expected any more."""
    returns = ReturnEstimator()
    cycles(returns, 30, 8, [0.002] * 8)
    cycles(returns, 40, 8, [])
    assert returns.share < 0.05


def test_outstanding_inputs_are_those_answered_that_have_not_returned() -> None:
    """Their number falls with each arrival, and never below zero."""
    returns = ReturnEstimator()
    assert returns.outstanding == 0
    returns.record_batch(1.0, 5)
    returns.record_arrivals(1.001, 2, WINDOW_S)
    assert returns.outstanding == 3
    returns.record_arrivals(1.002, 7, WINDOW_S)
    assert returns.outstanding == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(-0.5, 2.0), st.integers(0, 100), st.floats(0, 2.0)), max_size=60))
def test_the_estimate_stays_in_its_bounds(events: list[tuple[bool, float, int, float]]) -> None:
    """Whatever happens, and though threads report out of order, the share is from 0 to 1 and no delay is negative."""
    returns, now = ReturnEstimator(), 0.0
    for ended, step_s, inputs, window_s in events:
        now += step_s
        if ended:
            returns.record_batch(now, inputs)
        else:
            returns.record_arrivals(now, inputs, window_s)
        assert returns.outstanding >= 0
        assert 0 <= returns.share <= 1
        assert 0 <= returns.delay_s <= 2.0
