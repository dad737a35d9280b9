"""What a load found, what came of a setting, and which of two is better. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 0.03
"""What differs by less counts as the same: two runs of one setting differ by as much."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One load: requests in flight at all times, and what came of them. Latencies are NaN when nothing was answered."""

    clients: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    answers: int
    errors: int

    def within(self, budget_ms: float) -> bool:
        """Whether nothing failed and the p95 keeps the budget."""
        return self.errors == 0 and self.p95_ms <= budget_ms


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What came of one setting.

    Attributes:
        points: its loads, in the order in which they were tried.
        best: the one with the most answers within the budget; None when all broke it.
        dropped: whether the search for a lower load was given up, because it could not have won.
    """

    points: tuple[Measurement, ...]
    best: Measurement | None
    dropped: bool = False

    @property
    def per_s(self) -> float:
        """Answers a second within the budget; 0 when every load broke it."""
        return self.best.per_s if self.best else 0.0

    @property
    def lowest(self) -> Measurement:
        """The load with the lowest p95."""
        return min(self.points, key=lambda point: (point.errors > 0, not point.answers, point.p95_ms))


def best_within_budget(points: tuple[Measurement, ...], budget_ms: float) -> Measurement | None:
    """Returns the point with the most answers a second within the budget, if any is within it."""
    return max((point for point in points if point.within(budget_ms)), key=lambda point: point.per_s, default=None)


def trial_result(points: tuple[Measurement, ...], budget_ms: float, *, dropped: bool = False) -> TrialResult:
    """Returns what came of a setting with these loads."""
    return TrialResult(points, best_within_budget(points, budget_ms), dropped)


def is_better(one: TrialResult, other: TrialResult) -> bool:
    """Whether it clearly answers more within the budget; or, when neither keeps it, clearly misses it by less."""
    if one.best is not None or other.best is not None:
        return one.per_s > other.per_s * (1 + MARGIN)
    return one.lowest.p95_ms < other.lowest.p95_ms * (1 - MARGIN)
