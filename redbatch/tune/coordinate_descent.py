"""Coordinate descent: which candidate to try next, from the defaults, one setting after the other. Pure.

All combinations would be hundreds, at about ten seconds each. So one setting is changed at a time, from the best so
far: to its next larger value, and further while that clearly wins; otherwise to smaller ones. A value that does not win
ends its direction, and the values beyond it are not tried. If anything has won, all settings are searched once more,
because they depend on each other.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from redbatch.tune.measurement import TrialResult
from redbatch.tune.search_space import DEFAULTS, Candidate, Setting, neighbours

PASSES = 2
UP, DOWN = 1, -1


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate to try, and the result that it has to beat; None for the first."""

    candidate: Candidate
    baseline: TrialResult | None


CoordinateDescent = Generator[Trial, TrialResult, Candidate]


def coordinate_descent(settings: Sequence[Setting]) -> CoordinateDescent:
    """Yields trials, receives their results, and returns the best candidate."""
    results: dict[Candidate, TrialResult] = {DEFAULTS: (yield Trial(DEFAULTS, None))}
    best = DEFAULTS
    for _ in range(PASSES):
        before = best
        for setting in settings:
            for direction in (UP, DOWN):
                new_best = yield from _line_search(setting, direction, best, results)
                if new_best != best:
                    best = new_best
                    break  # the best so far came from the other direction
        if best == before:
            break
    return best


def _line_search(
    setting: Setting, direction: int, best: Candidate, results: dict[Candidate, TrialResult]
) -> Generator[Trial, TrialResult, Candidate]:
    for candidate in neighbours(best, setting, direction):
        if candidate not in results:
            results[candidate] = yield Trial(candidate, results[best])
        if not results[candidate].is_better_than(results[best]):
            break
        best = candidate
    return best


def min_trials(settings: Sequence[Setting]) -> int:
    """Returns the number of trials if the defaults are best: the defaults and their neighbours."""
    return 1 + sum(
        len(list(neighbours(DEFAULTS, setting, direction))[:1]) for setting in settings for direction in (UP, DOWN)
    )
