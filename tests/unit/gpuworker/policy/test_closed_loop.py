"""Whether answers bring new inputs, and how soon."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.closed_loop import Returns

WHILE_S = 0.020


def cycles(returns: Returns, number: int, answered: int, backs_s: list[float], batch_s: float = 0.040) -> None:
    """Plays batches of which inputs come back, each after its time; then the next batch ends."""
    now = 0.0 if returns.ended is None else returns.ended
    returns.finished(now, answered)
    for _ in range(number):
        for back_s in backs_s:
            returns.arrived(now + back_s, 1, WHILE_S)
        now += batch_s
        returns.finished(now, answered)


def test_clients_that_ask_again_are_expected_when_they_came_before() -> None:
    """Eight that always come 2 to 3 ms after the batch: nearly all, and by the time of the last."""
    returns = Returns()
    cycles(returns, 30, 8, [0.002 + i * 0.001 / 7 for i in range(8)])
    assert returns.share > 0.9
    assert returns.delay_s == pytest.approx(0.003)


def test_those_who_come_too_late_do_not_count() -> None:
    """Half of them after the while: half are expected, by the time of those that came in it."""
    returns = Returns()
    cycles(returns, 50, 8, [0.002] * 4 + [WHILE_S + 0.005] * 4)
    assert returns.share == pytest.approx(0.5, rel=0.05)
    assert returns.delay_s == pytest.approx(0.002)


def test_inputs_that_come_at_any_time_take_the_whole_while() -> None:
    """Poisson arrivals, as many in a batch's time as it answers: half of them in half that time, all over it."""
    rng, returns, now, answered = random.Random(1), Returns(), 0.0, 10
    returns.finished(now, answered)
    arrival = rng.expovariate(answered / 0.040)
    for _ in range(500):
        while arrival < now + 0.040:
            returns.arrived(arrival, 1, WHILE_S)
            arrival += rng.expovariate(answered / 0.040)
        now += 0.040
        returns.finished(now, answered)
    assert 0.3 < returns.share < 0.7
    assert returns.delay_s > 0.8 * WHILE_S


def test_what_came_once_is_not_believed_yet() -> None:
    """After one batch whose answers all came back, few are expected."""
    returns = Returns()
    cycles(returns, 1, 8, [0.002] * 8)
    assert returns.share < 0.2


def test_a_longer_way_is_learnt_at_once_and_a_shorter_one_slowly() -> None:
    """One late round is enough to wait longer; one early round is not enough to wait less."""
    returns = Returns()
    cycles(returns, 30, 8, [0.002] * 8)
    cycles(returns, 1, 8, [0.010] * 8)
    assert returns.delay_s == pytest.approx(0.010)
    cycles(returns, 1, 8, [0.002] * 8)
    assert returns.delay_s > 0.008
    cycles(returns, 60, 8, [0.002] * 8)
    assert returns.delay_s == pytest.approx(0.002, rel=0.1)


def test_clients_that_have_left_are_forgotten() -> None:
    """Forty batches after the last of them, nobody is expected any more."""
    returns = Returns()
    cycles(returns, 30, 8, [0.002] * 8)
    cycles(returns, 40, 8, [])
    assert returns.share < 0.05


def test_as_many_are_out_as_were_answered_and_have_not_come() -> None:
    """More inputs than were answered leave nobody out, and no fewer than nobody."""
    returns = Returns()
    assert returns.out == 0
    returns.finished(1.0, 5)
    returns.arrived(1.001, 2, WHILE_S)
    assert returns.out == 3
    returns.arrived(1.002, 7, WHILE_S)
    assert returns.out == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(-0.5, 2.0), st.integers(0, 100), st.floats(0, 2.0)), max_size=60))
def test_a_share_is_a_share(events: list[tuple[bool, float, int, float]]) -> None:
    """Whatever happens, and though threads tell it out of turn: from none to all, after no negative time."""
    returns, now = Returns(), 0.0
    for ended, step_s, inputs, while_s in events:
        now += step_s
        if ended:
            returns.finished(now, inputs)
        else:
            returns.arrived(now, inputs, while_s)
        assert returns.out >= 0
        assert 0 <= returns.share <= 1
        assert 0 <= returns.delay_s <= 2.0
