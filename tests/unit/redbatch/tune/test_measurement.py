"""Which of two results is better."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from redbatch.tune.measurement import MARGIN, trial_result
from tests.unit.redbatch.tune.measurements import measurement, result


def test_more_answers_within_the_budget_are_better() -> None:
    """More answers within the budget are better, by more than the margin and whatever the latency."""
    assert result(110, 90).is_better_than(result(100, 10))
    assert not result(100 * (1 + MARGIN), 10).is_better_than(result(100, 90))


def test_keeping_the_budget_is_better() -> None:
    """Keeping the budget is better, however many answers there are beyond it."""
    assert result(1, 90).is_better_than(result(1_000, 110))
    assert not result(1_000, 110).is_better_than(result(1, 90))


def test_if_nothing_keeps_the_budget_the_lower_latency_is_better() -> None:
    """Without a result within the budget, the lower latency is better: it may be close enough."""
    assert result(50, 110).is_better_than(result(500, 200))
    assert not result(500, 200).is_better_than(result(50, 110))


def test_a_load_with_errors_exceeds_the_budget() -> None:
    """A refusal is fast, but it is not an answer: a load with errors exceeds the budget."""
    assert trial_result((measurement(8, 100, 5, errors=1),), 100).best is None


def test_the_lowest_load_has_answers() -> None:
    """The lowest load is one with answers; loads with errors come after those without."""
    unanswered = measurement(1, 0, math.nan, errors=9)
    refused, slow = measurement(2, 10, 5, errors=1), measurement(4, 10, 500)
    assert trial_result((unanswered, refused, slow), 100).lowest == slow


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 300), st.floats(1, 300))
def test_at_most_one_of_two_is_better(one: float, other: float, one_ms: float, other_ms: float) -> None:
    """Of two results at most one is better, and none is better than itself."""
    first, second = result(one, one_ms), result(other, other_ms)
    assert not (first.is_better_than(second) and second.is_better_than(first))
    assert not first.is_better_than(first)
