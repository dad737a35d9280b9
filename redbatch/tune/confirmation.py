"""Whether a setting that looked better is better: in rounds, in turn with the defaults. Pure.

A search that takes the best of ten noisy figures takes a lucky one. So the few that beat the defaults run again, each
round all of them one after the other. One wins only if its slowest round beats the fastest round of the defaults, and
its median by more than the margin; on a tie the defaults stay.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redbatch.tune.load_search import rungs
from redbatch.tune.points import MARGIN, Found, Point
from redbatch.tune.search_space import DEFAULTS, Choice

Rounds = Mapping[Choice, Sequence[Point]]
"""The points of all rounds of each finalist."""


@dataclass(frozen=True, slots=True)
class Final:
    """A finalist at the load that was best for it: the medians of its rounds, and the rates of each."""

    choice: Choice
    clients: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who wins, and against what. `defaults` is None when they broke the budget."""

    winner: Final | None
    defaults: Final | None

    @property
    def gain(self) -> float | None:
        """How much more the winner answers than the defaults, as a share; None when there is nothing to compare."""
        if self.winner is None or self.defaults is None:
            return None
        return self.winner.per_s / self.defaults.per_s - 1


def loads(found: Found, most: int) -> list[int]:
    """Returns the numbers of clients to try a finalist with: the one that was best, and one less in case it slips."""
    if found.best is None:
        return []
    steps = rungs(most)
    at = steps.index(found.best.clients)
    return steps[max(0, at - 1) : at + 1]


def turns(finalists: Sequence[Choice], number: int) -> list[Choice]:
    """Returns the order of a round: each begins with another, so that none always comes first."""
    start = number % len(finalists)
    return [*finalists[start:], *finalists[:start]]


def by_clients(choice: Choice, points: Sequence[Point]) -> list[Final]:
    """Returns what came of a finalist's loads, leaving out those with which requests failed."""
    loads: dict[int, list[Point]] = {}
    for point in points:
        loads.setdefault(point.clients, []).append(point)
    return [
        _folded(choice, clients, mine)
        for clients, mine in loads.items()
        if not any(point.errors or not point.answers for point in mine)
    ]


def final_of(choice: Choice, points: Sequence[Point], budget_ms: float) -> Final | None:
    """Returns a finalist's best load whose median p95 keeps the budget; None when none does."""
    kept = [each for each in by_clients(choice, points) if each.p95_ms <= budget_ms]
    return max(kept, key=lambda each: each.per_s, default=None)


def judge(rounds: Rounds, budget_ms: float) -> Verdict:
    """Returns who wins."""
    finals = [final_of(choice, points, budget_ms) for choice, points in rounds.items()]
    defaults = next((each for each in finals if each is not None and each.choice == DEFAULTS), None)
    winners = [
        each
        for each in finals
        if each is not None and each.choice != DEFAULTS and (defaults is None or _beats(each, defaults))
    ]
    return Verdict(max(winners, key=lambda each: each.per_s, default=defaults), defaults)


def _beats(one: Final, other: Final) -> bool:
    return one.per_s > other.per_s * (1 + MARGIN) and min(one.runs) > max(other.runs)


def _folded(choice: Choice, clients: int, points: Sequence[Point]) -> Final:
    return Final(
        choice=choice,
        clients=clients,
        per_s=statistics.median(point.per_s for point in points),
        p50_ms=statistics.median(point.p50_ms for point in points),
        p95_ms=statistics.median(point.p95_ms for point in points),
        p99_ms=statistics.median(point.p99_ms for point in points),
        runs=tuple(point.per_s for point in points),
    )
