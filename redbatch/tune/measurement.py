"""Results of a load and of a candidate, and which of two is better. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 0.03
"""Relative difference below which two results count as equal: two runs of one candidate differ by up to this."""

DISTURBED_FACTOR = 1.2
"""Two loads of one candidate with the same clients whose rates differ by more than this factor were disturbed."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of one load with a constant number of requests in flight. Latencies are NaN if nothing was answered."""

    clients: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    answers: int
    errors: int

    def within(self, budget_ms: float) -> bool:
        """Whether no request failed and the p95 keeps the budget."""
        return self.errors == 0 and self.p95_ms <= budget_ms

    def describe(self) -> str:
        """Returns a short description."""
        clients = f"{self.clients:,} client{'' if self.clients == 1 else 's'}"
        return f"{self.per_s:,.1f} requests/s with {clients}, p95 {self.p95_ms:,.1f} ms"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of one candidate.

    Attributes:
        measurements: its loads, in the order in which they were tried.
        best: the one with the most answers per second within the budget; None if all exceeded it.
        dropped: whether the search for a lower load was stopped, because it could not have won.
    """

    measurements: tuple[Measurement, ...]
    best: Measurement | None
    dropped: bool = False

    @property
    def per_s(self) -> float:
        """Answers per second within the budget; 0 if every load exceeded it."""
        return self.best.per_s if self.best else 0.0

    @property
    def lowest(self) -> Measurement:
        """The load with the lowest p95."""
        return min(
            self.measurements,
            key=lambda measurement: (measurement.errors > 0, not measurement.answers, measurement.p95_ms),
        )

    def describe(self) -> str:
        """Returns a short description."""
        if self.best is not None:
            return self.best.describe()
        return f"{self.lowest.describe()}: over the budget" + (", and no faster" if self.dropped else "")

    def is_better_than(self, other: TrialResult) -> bool:
        """Whether it clearly answers more within the budget; or, if neither keeps it, clearly exceeds it by less."""
        if self.best is not None or other.best is not None:
            return self.per_s > other.per_s * (1 + MARGIN)
        return self.lowest.p95_ms < other.lowest.p95_ms * (1 - MARGIN)


def best_within_budget(measurements: tuple[Measurement, ...], budget_ms: float) -> Measurement | None:
    """Returns the measurement with the most answers per second within the budget, or None."""
    return max(
        (measurement for measurement in measurements if measurement.within(budget_ms)),
        key=lambda measurement: measurement.per_s,
        default=None,
    )


def trial_result(measurements: tuple[Measurement, ...], budget_ms: float, *, dropped: bool = False) -> TrialResult:
    """Returns the result of a candidate with these loads."""
    return TrialResult(measurements, best_within_budget(measurements, budget_ms), dropped)
