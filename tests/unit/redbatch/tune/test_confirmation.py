"""Confirmation of the winner."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from redbatch.tune.confirmation import RoundMedians, confirm, confirmation_clients, medians_by_clients, round_order
from redbatch.tune.measurement import MARGIN, Measurement, trial_result
from redbatch.tune.search_space import DEFAULTS
from tests.unit.redbatch.tune.measurements import measurement, result

BUDGET_MS = 100.0
OTHER = frozenset({("size", "8")})
THIRD = frozenset({("size", "16")})


def rounds(*rates: float, clients: int = 16, p95_ms: float = 50.0) -> list[Measurement]:
    """Returns the measurements of a candidate's rounds, with one load in each."""
    return [measurement(clients, rate, p95_ms) for rate in rates]


def test_a_candidate_that_is_faster_in_every_round_wins() -> None:
    """A candidate that is faster in every round wins, and the gain is stated."""
    confirmation = confirm({DEFAULTS: rounds(100, 101, 99), OTHER: rounds(112, 110, 108)}, BUDGET_MS)
    assert confirmation.winner is not None
    assert (confirmation.winner.candidate, confirmation.winner.per_s) == (OTHER, 110)
    assert confirmation.gain is not None
    assert round(confirmation.gain, 3) == 0.1


def test_on_a_tie_the_defaults_stay() -> None:
    """One lucky round, or a small gain in all of them, is not a win."""
    for rates in ((150, 149, 100), (102, 102, 102)):
        confirmation = confirm({DEFAULTS: rounds(100, 101, 99), OTHER: rounds(*rates)}, BUDGET_MS)
        assert confirmation.winner == confirmation.defaults
        assert confirmation.gain == 0


def test_the_fastest_of_several_winners_wins() -> None:
    """Each candidate is compared with the defaults, and the fastest of several winners wins."""
    confirmation = confirm({DEFAULTS: rounds(100), OTHER: rounds(120), THIRD: rounds(130)}, BUDGET_MS)
    assert confirmation.winner is not None
    assert confirmation.winner.candidate == THIRD


def test_a_load_whose_median_exceeds_the_budget_is_excluded() -> None:
    """The median of the rounds decides; the next lower load replaces one that exceeds the budget."""
    measurements = [
        measurement(24, 200, 101),
        measurement(16, 150, 70),
        measurement(24, 200, 99),
        measurement(16, 150, 70),
        measurement(24, 200, 102),
    ]
    confirmation = confirm({DEFAULTS: rounds(100, 101, 99), OTHER: measurements}, BUDGET_MS)
    assert confirmation.winner is not None
    assert (confirmation.winner.clients, confirmation.winner.per_s) == (16, 150)


def test_a_candidate_over_the_budget_cannot_win() -> None:
    """If the defaults exceed the budget, any candidate that keeps it wins; if none does, there is no winner."""
    exceeding = rounds(500, 500, 500, p95_ms=101)
    assert (
        confirm({DEFAULTS: rounds(100), OTHER: exceeding}, BUDGET_MS).winner
        == confirm({DEFAULTS: rounds(100)}, 100).winner
    )
    confirmation = confirm({DEFAULTS: exceeding, OTHER: rounds(10, 11)}, BUDGET_MS)
    assert confirmation.winner is not None
    assert (confirmation.winner.candidate, confirmation.gain) == (OTHER, None)
    assert confirm({OTHER: exceeding}, BUDGET_MS).winner is None


def test_a_load_with_errors_is_excluded() -> None:
    """One failed request in one round excludes the load."""
    assert medians_by_clients(OTHER, [measurement(8, 10, 5), measurement(8, 10, 5, errors=1)]) == []


RATES = st.lists(st.floats(1, 1e4), min_size=3, max_size=3)


@given(RATES, RATES)
def test_a_winner_is_better_in_every_round(defaults: Sequence[float], other: Sequence[float]) -> None:
    """On any rates, the winner is better in every round, and its median by more than the margin."""
    confirmation = confirm({DEFAULTS: rounds(*defaults), OTHER: rounds(*other)}, BUDGET_MS)
    assert isinstance(confirmation.winner, RoundMedians)
    won = confirmation.winner.candidate == OTHER
    assert won == (min(other) > max(defaults) and sorted(other)[1] > sorted(defaults)[1] * (1 + MARGIN))


def test_rounds_use_the_best_load_and_the_next_lower() -> None:
    """The rounds use the best load and the next lower; without a best load, that with the lowest p95."""
    assert confirmation_clients(result(100, clients=16), 64) == [12, 16]
    assert confirmation_clients(result(100, clients=1), 64) == [1]
    assert confirmation_clients(trial_result((measurement(1, 1, 500),), BUDGET_MS), 64) == [1]


def test_each_round_starts_with_another_candidate() -> None:
    """Each round starts with another candidate and includes all of them."""
    assert [round_order([DEFAULTS, OTHER, THIRD], number)[0] for number in range(4)] == [
        DEFAULTS,
        OTHER,
        THIRD,
        DEFAULTS,
    ]
    assert set(round_order([DEFAULTS, OTHER], 1)) == {DEFAULTS, OTHER}
