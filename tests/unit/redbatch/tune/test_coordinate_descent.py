"""The order in which candidates are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from redbatch.tune.confirmation import find_challengers
from redbatch.tune.coordinate_descent import Trial, coordinate_descent, min_trials
from redbatch.tune.measurement import TrialResult
from redbatch.tune.search_space import DEFAULTS, Candidate, Setting
from tests.unit.redbatch.tune.measurements import result

SIZE = Setting("size", ("8", "16", None, "64", "128"))
WAIT = Setting("wait", ("auto", None, "5", "10"))
KNOBS = (SIZE, WAIT)


def descend(per_s: Callable[[Mapping[str, str]], float]) -> tuple[Candidate, list[Trial], dict[Candidate, TrialResult]]:
    """Runs the descent to its end; returns the best candidate, the trials, and their results."""
    descent = coordinate_descent(KNOBS)
    trial, trials, results = next(descent), [], {}
    while True:
        trials.append(trial)
        results[trial.candidate] = result(per_s(dict(trial.candidate)))
        try:
            trial = descent.send(results[trial.candidate])
        except StopIteration as end:
            best: Candidate = end.value
            return best, trials, results


def test_when_the_defaults_are_best_only_their_neighbours_are_tried() -> None:
    """Only the neighbours of the defaults are tried, each once."""
    best, trials, _ = descend(lambda values: 100 - len(values))
    assert best == DEFAULTS
    names = [dict(each.candidate) for each in trials]
    assert names == [{}, {"size": "64"}, {"size": "16"}, {"wait": "5"}, {"wait": "auto"}]
    assert len(trials) == min_trials(KNOBS)


def test_the_search_continues_while_it_wins() -> None:
    """The search continues from the best candidate so far, with which the next ones are compared."""
    rates = {None: 100.0, "64": 120.0, "128": 150.0}
    best, trials, _ = descend(
        lambda values: rates.get(values.get("size"), 50.0) + (20 if "auto" in values.values() else 0)
    )
    assert dict(best) == {"size": "128", "wait": "auto"}
    assert trials[0].baseline is None
    assert [each.baseline.per_s for each in trials[1:3] if each.baseline] == [100, 120]


def test_dependent_settings_are_searched_again() -> None:
    """The size helps only together with a wait, which is tried after it, so settings are searched twice."""
    best, _, _ = descend(
        lambda values: 100 + 50 * ("wait" in values) + 100 * (len(values) > 1 and values["size"] == "64")
    )
    assert dict(best) == {"size": "64", "wait": "5"}


@given(st.dictionaries(st.tuples(st.sampled_from(SIZE.values), st.sampled_from(WAIT.values)), st.floats(1, 1e4)))
def test_the_search_ends_and_tries_nothing_twice(rates: dict[tuple[str | None, str | None], float]) -> None:
    """On any rates, the search ends, tries nothing twice, and returns nothing clearly worse than the defaults."""
    best, trials, results = descend(lambda values: rates.get((values.get("size"), values.get("wait")), 10.0))
    choices = [each.candidate for each in trials]
    assert len(set(choices)) == len(choices) <= len(SIZE.values) * len(WAIT.values)
    assert best in results
    assert not results[DEFAULTS].is_better_than(results[best])


def test_challengers_are_those_that_clearly_beat_the_defaults() -> None:
    """Challengers clearly beat the defaults; the best is first."""
    one, two, three = (frozenset({("size", size)}) for size in ("8", "16", "64"))
    results = {DEFAULTS: result(100), one: result(102), two: result(120), three: result(150)}
    assert find_challengers(results, 5) == [three, two]
    assert find_challengers(results, 1) == [three]


def test_a_candidate_over_the_budget_is_no_challenger() -> None:
    """A candidate that exceeds the budget is no challenger, even if the defaults exceed it by more."""
    one = frozenset({("size", "8")})
    assert find_challengers({DEFAULTS: result(100, 500), one: result(100, 200)}, 2) == []
    assert find_challengers({DEFAULTS: result(100, 500), one: result(1, 99)}, 2) == [one]
