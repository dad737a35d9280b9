"""Who wins in the end."""

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
    """A finalist's rounds, with one load in each."""
    return [measurement(clients, rate, p95_ms) for rate in rates]


def test_who_is_faster_in_every_round_wins() -> None:
    """And it is said by how much."""
    verdict = confirm({DEFAULTS: rounds(100, 101, 99), OTHER: rounds(112, 110, 108)}, BUDGET_MS)
    assert verdict.winner is not None
    assert (verdict.winner.candidate, verdict.winner.per_s) == (OTHER, 110)
    assert verdict.gain is not None
    assert round(verdict.gain, 3) == 0.1


def test_on_a_tie_the_defaults_stay() -> None:
    """One lucky round, or a little more in all of them, is no win."""
    for rates in ((150, 149, 100), (102, 102, 102)):
        verdict = confirm({DEFAULTS: rounds(100, 101, 99), OTHER: rounds(*rates)}, BUDGET_MS)
        assert verdict.winner == verdict.defaults
        assert verdict.gain == 0


def test_of_several_that_win_the_fastest_does() -> None:
    """Each is compared with the defaults."""
    verdict = confirm({DEFAULTS: rounds(100), OTHER: rounds(120), THIRD: rounds(130)}, BUDGET_MS)
    assert verdict.winner is not None
    assert verdict.winner.candidate == THIRD


def test_a_load_that_slips_over_the_budget_counts_no_more() -> None:
    """The median of the rounds decides; the load below it is there for that."""
    slipped = [
        measurement(24, 200, 101),
        measurement(16, 150, 70),
        measurement(24, 200, 99),
        measurement(16, 150, 70),
        measurement(24, 200, 102),
    ]
    verdict = confirm({DEFAULTS: rounds(100, 101, 99), OTHER: slipped}, BUDGET_MS)
    assert verdict.winner is not None
    assert (verdict.winner.clients, verdict.winner.per_s) == (16, 150)


def test_who_cannot_keep_the_budget_cannot_win() -> None:
    """Without the defaults anybody who keeps it wins; if nobody does, nobody."""
    over = rounds(500, 500, 500, p95_ms=101)
    assert (
        confirm({DEFAULTS: rounds(100), OTHER: over}, BUDGET_MS).winner == confirm({DEFAULTS: rounds(100)}, 100).winner
    )
    verdict = confirm({DEFAULTS: over, OTHER: rounds(10, 11)}, BUDGET_MS)
    assert verdict.winner is not None
    assert (verdict.winner.candidate, verdict.gain) == (OTHER, None)
    assert confirm({OTHER: over}, BUDGET_MS).winner is None


def test_a_load_with_errors_is_no_load() -> None:
    """One failed request in one round is enough."""
    assert medians_by_clients(OTHER, [measurement(8, 10, 5), measurement(8, 10, 5, errors=1)]) == []


RATES = st.lists(st.floats(1, 1e4), min_size=3, max_size=3)


@given(RATES, RATES)
def test_a_winner_is_better_in_every_round(defaults: Sequence[float], other: Sequence[float]) -> None:
    """Whatever came, and by more than the margin in the middle."""
    verdict = confirm({DEFAULTS: rounds(*defaults), OTHER: rounds(*other)}, BUDGET_MS)
    assert isinstance(verdict.winner, RoundMedians)
    won = verdict.winner.candidate == OTHER
    assert won == (min(other) > max(defaults) and sorted(other)[1] > sorted(defaults)[1] * (1 + MARGIN))


def test_a_finalist_runs_its_best_load_and_the_one_below() -> None:
    """The lowest has none below it."""
    assert confirmation_clients(result(100, clients=16), 64) == [12, 16]
    assert confirmation_clients(result(100, clients=1), 64) == [1]
    assert confirmation_clients(trial_result((measurement(1, 1, 500),), BUDGET_MS), 64) == []


def test_each_round_begins_with_another() -> None:
    """And all run in each."""
    assert [round_order([DEFAULTS, OTHER, THIRD], number)[0] for number in range(4)] == [
        DEFAULTS,
        OTHER,
        THIRD,
        DEFAULTS,
    ]
    assert set(round_order([DEFAULTS, OTHER], 1)) == {DEFAULTS, OTHER}
