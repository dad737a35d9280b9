"""Which setting to try next: from the defaults, one setting after the other. Pure.

All combinations would be hundreds, at some ten seconds each. So one setting is changed at a time, from the best so far:
to its next value up, and on while that clearly wins; else down. What does not win ends its direction, and the values
beyond it are not tried. When anything has won, all settings are gone through once more, for they depend on each other.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from redbatch.tune.measurement import TrialResult, is_better
from redbatch.tune.search_space import DEFAULTS, Candidate, Setting, neighbours

PASSES = 2
UP, DOWN = 1, -1


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting to try, and what it has to beat: nothing for the first."""

    choice: Candidate
    against: TrialResult | None


CoordinateDescent = Generator[Trial, TrialResult, Candidate]


def coordinate_descent(knobs: Sequence[Setting]) -> CoordinateDescent:
    """Yields what to try, takes what came of it, and returns the best."""
    found: dict[Candidate, TrialResult] = {DEFAULTS: (yield Trial(DEFAULTS, None))}
    best = DEFAULTS
    for _ in range(PASSES):
        before = best
        for knob in knobs:
            for way in (UP, DOWN):
                reached = yield from _line_search(knob, way, best, found)
                if reached != best:
                    best = reached
                    break  # the other way was where it came from
        if best == before:
            break
    return best


def _line_search(
    knob: Setting, way: int, best: Candidate, found: dict[Candidate, TrialResult]
) -> Generator[Trial, TrialResult, Candidate]:
    for choice in neighbours(best, knob, way):
        if choice not in found:
            found[choice] = yield Trial(choice, found[best])
        if not is_better(found[choice], found[best]):
            break
        best = choice
    return best


def min_trials(knobs: Sequence[Setting]) -> int:
    """Returns how many settings are tried when the defaults are best: themselves, and their neighbours."""
    return 1 + sum(len(list(neighbours(DEFAULTS, knob, way))[:1]) for knob in knobs for way in (UP, DOWN))


def challengers(found: Mapping[Candidate, TrialResult], most: int) -> list[Candidate]:
    """Returns those that clearly beat the defaults, the best first; when only they keep the budget, those that do."""
    better = [
        choice
        for choice, result in found.items()
        if choice != DEFAULTS and result.best is not None and is_better(result, found[DEFAULTS])
    ]
    return sorted(better, key=lambda choice: -found[choice].per_s)[:most]
