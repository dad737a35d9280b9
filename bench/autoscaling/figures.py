"""The figures of a simulated day: latency, refusals, cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.autoscaling.cluster import DayHistory, Scenario
from bench.autoscaling.traffic import HOUR_S, STEP_S
from bench.autoscaling.worker_profile import QUANTILES, Floats

SLOW_S = 1.0
MIN_S, MAX_S, BINS = 0.001, 100.0, 600
"""Latencies are counted in bins, each 2 % wider than the one before."""

EDGES = np.geomspace(MIN_S, MAX_S, BINS + 1)
CHUNK = 20_000
"""Cohorts that are counted in one step."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a day.

    `slow`, `refused` and `expired` are shares of all requests. `slow` counts the requests that were answered after
    SLOW_S, refused, or expired. `changes` counts the changes of the number of workers.
    """

    requests: int
    p50_ms: float
    p99_ms: float
    slow: float
    refused: float
    expired: float
    worker_hours: float
    gateway_hours: float
    max_workers: int
    max_gateways: int
    changes: int


def figures(history: DayHistory, scenario: Scenario) -> Figures:
    """Returns the figures of a whole day."""
    counts = histogram(history, scenario, np.array([len(history.arrived)]))[0]
    requests, refused, expired = sum(history.arrived), sum(history.refused), sum(history.expired)
    late = float(counts[np.searchsorted(EDGES, SLOW_S) :].sum())
    return Figures(
        requests=requests,
        p50_ms=1000 * quantile(counts, 0.5),
        p99_ms=1000 * quantile(counts, 0.99),
        slow=(late + refused + expired) / requests,
        refused=refused / requests,
        expired=expired / requests,
        worker_hours=sum(history.billed_workers) * STEP_S / HOUR_S,
        gateway_hours=sum(history.gateways) * STEP_S / HOUR_S,
        max_workers=max(history.workers),
        max_gateways=max(history.gateways),
        changes=int(np.count_nonzero(np.diff(history.workers))),
    )


def after_outage(history: DayHistory, scenario: Scenario) -> dict[str, float]:
    """Returns the figures of the hour after an outage of Redis.

    `min_ready` is the minimum of ready workers from the start of the outage to the end of that hour. `slow_after` is
    the share of the hour's requests that were refused, expired, or answered after SLOW_S. `p99_after_ms` is the p99 of
    the answers in that hour.
    """
    outage = scenario.outage
    down, up = (round(at_s / STEP_S) for at_s in (outage.start_s, outage.start_s + outage.duration_s))
    end = up + round(HOUR_S / STEP_S)
    counts = histogram(history, scenario, np.array([up, end, len(history.arrived)]))[1]
    late = float(counts[np.searchsorted(EDGES, SLOW_S) :].sum())
    unanswered = sum(history.refused[up:end]) + sum(history.expired[up:end])
    return {
        "min_ready": min(history.ready_workers[down:end]),
        "slow_after": (late + unanswered) / sum(history.arrived[up:end]),
        "p99_after_ms": 1000 * quantile(counts, 0.99),
    }


def p99_ms(history: DayHistory, scenario: Scenario, span_s: float) -> Floats:
    """Returns the p99 of the requests answered in each span of the day; NaN for a span without any."""
    ends = np.arange(span_s / STEP_S, len(history.arrived) + 1, span_s / STEP_S)
    return np.array([1000 * quantile(counts, 0.99) for counts in histogram(history, scenario, ends)])


def histogram(history: DayHistory, scenario: Scenario, ends: NDArray[np.float64] | NDArray[np.int64]) -> Floats:
    """Returns the answered requests in each bin (columns) for each span between the steps `ends` (rows).

    The first span begins at 0.
    """
    counts = np.zeros((len(ends), BINS))
    answered = np.array(history.answered, dtype=float).reshape(-1, 4)
    further_inputs_s = (scenario.inputs - 1) / scenario.profile.inputs_per_s
    for begin in range(0, len(answered), CHUNK):
        steps, sizes, waited_s, loads = answered[begin : begin + CHUNK].T
        latencies = waited_s[:, None] + scenario.profile.latencies(loads) + further_inputs_s
        bins = np.clip(np.searchsorted(EDGES, latencies) - 1, 0, BINS - 1)
        spans = np.minimum(np.searchsorted(ends, steps, side="right"), len(ends) - 1)
        indices = spans[:, None] * BINS + bins
        weights = np.repeat(sizes / QUANTILES, QUANTILES)
        counts += np.bincount(indices.ravel(), weights, len(ends) * BINS).reshape(len(ends), BINS)
    return counts


def quantile(counts: Floats, share: float) -> float:
    """Returns the upper edge (s) of the bin in which that share of the requests is reached; NaN if there are none."""
    total = counts.sum()
    if not total:
        return float("nan")
    return float(EDGES[1 + np.searchsorted(np.cumsum(counts), share * total)])
