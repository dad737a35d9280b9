"""Confirms in rounds, which alternate with the defaults, that a candidate is better. Pure.

A search that takes the best of ten noisy figures takes a lucky one. So the few candidates that beat the defaults run
again: each round runs all of them, one after the other. A candidate wins only if its slowest round beats the fastest
round of the defaults, and its median beats theirs by more than the margin; on a tie the defaults stay.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redbatch.tune.load_search import client_counts
from redbatch.tune.measurement import MARGIN, Measurement, TrialResult
from redbatch.tune.search_space import DEFAULTS, Candidate

Rounds = Mapping[Candidate, Sequence[Measurement]]
"""The measurements of all rounds of each candidate."""


@dataclass(frozen=True, slots=True)
class RoundMedians:
    """A candidate at one load: the medians of its rounds, and the rate of each round."""

    candidate: Candidate
    clients: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Outcome of the rounds. `defaults` is None if the defaults exceeded the budget in the rounds too."""

    winner: RoundMedians | None
    defaults: RoundMedians | None

    @property
    def gain(self) -> float | None:
        """Relative gain in answers per second of the winner over the defaults; None if there is nothing to compare."""
        if self.winner is None or self.defaults is None:
            return None
        return self.winner.per_s / self.defaults.per_s - 1


def confirmation_clients(result: TrialResult, max_clients: int) -> list[int]:
    """Returns the numbers of clients for the rounds: the best, and the next lower in case that exceeds the budget.

    If every load exceeded it, that with the lowest p95: one disturbed load must not decide against the defaults.
    """
    if result.best is None:
        return [result.lowest.clients]
    counts = client_counts(max_clients)
    index = counts.index(result.best.clients)
    return counts[max(0, index - 1) : index + 1]


def round_order(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """Returns the order of a round: each starts with another candidate, so that none is always first."""
    start = number % len(candidates)
    return [*candidates[start:], *candidates[:start]]


def medians_by_clients(candidate: Candidate, measurements: Sequence[Measurement]) -> list[RoundMedians]:
    """Returns the medians of a candidate for each number of clients, without those with failed requests."""
    by_clients: dict[int, list[Measurement]] = {}
    for measurement in measurements:
        by_clients.setdefault(measurement.clients, []).append(measurement)
    return [
        _medians(candidate, clients, same_load)
        for clients, same_load in by_clients.items()
        if not any(measurement.errors or not measurement.answers for measurement in same_load)
    ]


def best_medians(candidate: Candidate, measurements: Sequence[Measurement], budget_ms: float) -> RoundMedians | None:
    """Returns the medians of the best load whose median p95 keeps the budget, or None."""
    within_budget = [each for each in medians_by_clients(candidate, measurements) if each.p95_ms <= budget_ms]
    return max(within_budget, key=lambda each: each.per_s, default=None)


def confirm(rounds: Rounds, budget_ms: float) -> Confirmation:
    """Returns the outcome of the rounds."""
    all_medians = [best_medians(candidate, measurements, budget_ms) for candidate, measurements in rounds.items()]
    defaults = next((each for each in all_medians if each is not None and each.candidate == DEFAULTS), None)
    winners = [
        each
        for each in all_medians
        if each is not None and each.candidate != DEFAULTS and (defaults is None or _beats(each, defaults))
    ]
    return Confirmation(max(winners, key=lambda each: each.per_s, default=defaults), defaults)


def _beats(one: RoundMedians, other: RoundMedians) -> bool:
    return one.per_s > other.per_s * (1 + MARGIN) and min(one.runs) > max(other.runs)


def _medians(candidate: Candidate, clients: int, measurements: Sequence[Measurement]) -> RoundMedians:
    return RoundMedians(
        candidate=candidate,
        clients=clients,
        per_s=statistics.median(measurement.per_s for measurement in measurements),
        p50_ms=statistics.median(measurement.p50_ms for measurement in measurements),
        p95_ms=statistics.median(measurement.p95_ms for measurement in measurements),
        p99_ms=statistics.median(measurement.p99_ms for measurement in measurements),
        runs=tuple(measurement.per_s for measurement in measurements),
    )


def find_challengers(results: Mapping[Candidate, TrialResult], max_challengers: int) -> list[Candidate]:
    """Returns the candidates that clearly beat the defaults, best first.

    If the defaults exceed the budget, these are the candidates that keep it.
    """
    better = [
        candidate
        for candidate, result in results.items()
        if candidate != DEFAULTS and result.best is not None and result.is_better_than(results[DEFAULTS])
    ]
    return sorted(better, key=lambda candidate: -results[candidate].per_s)[:max_challengers]
