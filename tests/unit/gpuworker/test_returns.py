"""How soon answers bring new inputs."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.returns import EDGES_S, Returns


def share_back(returns: Returns, after_s: float) -> float:
    """Returns the share of those out that is expected back by then, from the end of the batch on."""
    edge = next(k for k, edge_s in enumerate(EDGES_S) if edge_s >= after_s)
    return 1 - math.exp(-returns.risks[edge])


def cycles(returns: Returns, number: int, answered: int, backs_s: list[float], batch_s: float) -> None:
    """Plays batches of which so many inputs come back, each after its time; then the next batch ends."""
    now = 0.0
    returns.finished(now, answered)
    for _ in range(number):
        for back_s in backs_s:
            returns.arrived(now + back_s, 1)
        now += batch_s
        returns.finished(now, answered)


def test_clients_that_ask_again_are_expected_when_they_came_before() -> None:
    """Eight that always come 2 to 3 ms after the batch: few are expected before that, nearly all after it."""
    returns = Returns()
    cycles(returns, 30, 8, [0.002 + i * 0.001 / 7 for i in range(8)], 0.040)
    assert share_back(returns, 0.0015) < 0.05
    assert share_back(returns, 0.004) > 0.9


def test_inputs_that_come_at_any_time_are_not_taken_for_echoes() -> None:
    """Of Poisson arrivals, as many in a batch's time as one answers, half of them are expected in half that time."""
    rng, returns, now, batch_s, answered = random.Random(1), Returns(), 0.0, 0.020, 10
    returns.finished(now, answered)
    arrival = rng.expovariate(answered / batch_s)
    for _ in range(500):
        while arrival < now + batch_s:
            returns.arrived(arrival, 1)
            arrival += rng.expovariate(answered / batch_s)
        now += batch_s
        returns.finished(now, answered)
    assert 0.3 < share_back(returns, batch_s / 2) < 0.7


def test_what_came_once_is_not_believed_yet() -> None:
    """After one batch whose answers came back, and nothing else known, a third of them may stay away."""
    returns = Returns()
    cycles(returns, 1, 1, [0.001], 0.010)
    assert share_back(returns, 0.010) < 0.67


def test_clients_that_have_left_are_forgotten() -> None:
    """Twenty batches after the last of them, nobody is expected any more."""
    returns = Returns()
    cycles(returns, 30, 8, [0.002] * 8, 0.040)
    cycles(returns, 40, 8, [], 0.040)
    assert share_back(returns, 0.040) < 0.1


def test_as_many_are_out_as_were_answered_and_have_not_come() -> None:
    """More inputs than were answered leave nobody out, and no fewer than nobody."""
    returns = Returns()
    assert returns.out == 0
    returns.finished(1.0, 5)
    returns.arrived(1.001, 2)
    assert (returns.answered, returns.out) == (5, 3)
    returns.arrived(1.002, 7)
    assert returns.out == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(-0.5, 2.0), st.integers(0, 100)), max_size=60))
def test_risks_only_add_up(events: list[tuple[bool, float, int]]) -> None:
    """Whatever happens, and though threads tell it out of turn: risks are finite and never fall from edge to edge."""
    returns, now = Returns(), 0.0
    for ended, step_s, inputs in events:
        now += step_s
        (returns.finished if ended else returns.arrived)(now, inputs)
        assert returns.out >= 0
        assert list(returns.risks) == sorted(returns.risks)
        assert 0 <= returns.risks[-1] < math.inf
