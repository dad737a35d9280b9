"""Whether a setting that looked better is better: in rounds, in turn with the defaults. Pure.

A search that takes the best of ten noisy figures takes a lucky one. So the few that beat the defaults run again, each
round all of them one after the other. One wins only if its slowest round beats the fastest round of the defaults, and
its median by more than the margin; on a tie the defaults stay.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redbatch.tune.load_search import client_counts
from redbatch.tune.measurement import MARGIN, Measurement, TrialResult
from redbatch.tune.search_space import DEFAULTS, Candidate

Rounds = Mapping[Candidate, Sequence[Measurement]]
"""The points of all rounds of each finalist."""


@dataclass(frozen=True, slots=True)
class RoundMedians:
    """A finalist at the load that was best for it: the medians of its rounds, and the rates of each."""

    choice: Candidate
    clients: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Who wins, and against what. `defaults` is None when they broke the budget."""

    winner: RoundMedians | None
    defaults: RoundMedians | None

    @property
    def gain(self) -> float | None:
        """How much more the winner answers than the defaults, as a share; None when there is nothing to compare."""
        if self.winner is None or self.defaults is None:
            return None
        return self.winner.per_s / self.defaults.per_s - 1


def confirmation_clients(found: TrialResult, most: int) -> list[int]:
    """Returns the numbers of clients to try a finalist with: the one that was best, and one less in case it slips."""
    if found.best is None:
        return []
    steps = client_counts(most)
    at = steps.index(found.best.clients)
    return steps[max(0, at - 1) : at + 1]


def round_order(finalists: Sequence[Candidate], number: int) -> list[Candidate]:
    """Returns the order of a round: each begins with another, so that none always comes first."""
    start = number % len(finalists)
    return [*finalists[start:], *finalists[:start]]


def medians_by_clients(choice: Candidate, points: Sequence[Measurement]) -> list[RoundMedians]:
    """Returns what came of a finalist's loads, leaving out those with which requests failed."""
    confirmation_clients: dict[int, list[Measurement]] = {}
    for point in points:
        confirmation_clients.setdefault(point.clients, []).append(point)
    return [
        _medians(choice, clients, mine)
        for clients, mine in confirmation_clients.items()
        if not any(point.errors or not point.answers for point in mine)
    ]


def best_medians(choice: Candidate, points: Sequence[Measurement], budget_ms: float) -> RoundMedians | None:
    """Returns a finalist's best load whose median p95 keeps the budget; None when none does."""
    kept = [each for each in medians_by_clients(choice, points) if each.p95_ms <= budget_ms]
    return max(kept, key=lambda each: each.per_s, default=None)


def confirm(rounds: Rounds, budget_ms: float) -> Confirmation:
    """Returns who wins."""
    finals = [best_medians(choice, points, budget_ms) for choice, points in rounds.items()]
    defaults = next((each for each in finals if each is not None and each.choice == DEFAULTS), None)
    winners = [
        each
        for each in finals
        if each is not None and each.choice != DEFAULTS and (defaults is None or _beats(each, defaults))
    ]
    return Confirmation(max(winners, key=lambda each: each.per_s, default=defaults), defaults)


def _beats(one: RoundMedians, other: RoundMedians) -> bool:
    return one.per_s > other.per_s * (1 + MARGIN) and min(one.runs) > max(other.runs)


def _medians(choice: Candidate, clients: int, points: Sequence[Measurement]) -> RoundMedians:
    return RoundMedians(
        choice=choice,
        clients=clients,
        per_s=statistics.median(point.per_s for point in points),
        p50_ms=statistics.median(point.p50_ms for point in points),
        p95_ms=statistics.median(point.p95_ms for point in points),
        p99_ms=statistics.median(point.p99_ms for point in points),
        runs=tuple(point.per_s for point in points),
    )
