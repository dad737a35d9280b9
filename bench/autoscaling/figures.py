"""What a day amounts to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.autoscaling.cluster import Course, Scene
from bench.autoscaling.traffic import HOUR_S, STEP_S
from bench.autoscaling.worker_profile import QUANTILES, Floats

SLOW_S = 1.0
LEAST_S, MOST_S, BINS = 0.001, 100.0, 600
"""Latencies are counted in bins, each 2 % wider than the one before."""

EDGES = np.geomspace(LEAST_S, MOST_S, BINS + 1)
AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Figures:
    """A day: shares are of all requests; `slow` were answered after SLOW_S, refused, or expired."""

    requests: int
    p50_ms: float
    p99_ms: float
    slow: float
    refused: float
    expired: float
    worker_hours: float
    gateway_hours: float
    most_workers: int
    most_gateways: int
    changes: int


def figures(course: Course, scene: Scene) -> Figures:
    """Returns the figures of a whole day."""
    counts = histogram(course, scene, np.array([len(course.arrived)]))[0]
    requests, refused, expired = sum(course.arrived), sum(course.refused), sum(course.expired)
    late = float(counts[np.searchsorted(EDGES, SLOW_S) :].sum())
    return Figures(
        requests=requests,
        p50_ms=1000 * quantile(counts, 0.5),
        p99_ms=1000 * quantile(counts, 0.99),
        slow=(late + refused + expired) / requests,
        refused=refused / requests,
        expired=expired / requests,
        worker_hours=sum(course.paid) * STEP_S / HOUR_S,
        gateway_hours=sum(course.gateways) * STEP_S / HOUR_S,
        most_workers=max(course.workers),
        most_gateways=max(course.gateways),
        changes=int(np.count_nonzero(np.diff(course.workers))),
    )


def after_outage(course: Course, scene: Scene) -> dict[str, float]:
    """Returns how a day goes on after Redis was away: figures of the hour that begins when it is back.

    The fewest workers that were ready from when it went on; and, of those who came in that hour, how many were refused
    or expired, or answered after SLOW_S.
    """
    gone, back = (round(at_s / STEP_S) for at_s in (scene.outage.at_s, scene.outage.at_s + scene.outage.for_s))
    end = back + round(HOUR_S / STEP_S)
    counts = histogram(course, scene, np.array([back, end, len(course.arrived)]))[1]
    late = float(counts[np.searchsorted(EDGES, SLOW_S) :].sum())
    lost = sum(course.refused[back:end]) + sum(course.expired[back:end])
    return {
        "least_ready": min(course.ready[gone:end]),
        "slow_after": (late + lost) / sum(course.arrived[back:end]),
        "p99_after_ms": 1000 * quantile(counts, 0.99),
    }


def p99_ms(course: Course, scene: Scene, span_s: float) -> Floats:
    """Returns the p99 of those who were answered in each span of the day; NaN where nobody was."""
    ends = np.arange(span_s / STEP_S, len(course.arrived) + 1, span_s / STEP_S)
    return np.array([1000 * quantile(counts, 0.99) for counts in histogram(course, scene, ends)])


def histogram(course: Course, scene: Scene, ends: NDArray[np.float64] | NDArray[np.int64]) -> Floats:
    """Returns, for each span between the steps `ends` (the first begins at 0), how many were answered in each bin."""
    found = np.zeros((len(ends), BINS))
    answered = np.array(course.answered, dtype=float).reshape(-1, 4)
    own_s = (scene.inputs - 1) / scene.station.inputs_per_s
    for begin in range(0, len(answered), AT_ONCE):
        steps, numbers, waited_s, loads = answered[begin : begin + AT_ONCE].T
        latencies = waited_s[:, None] + scene.station.latencies(loads) + own_s
        bins = np.clip(np.searchsorted(EDGES, latencies) - 1, 0, BINS - 1)
        spans = np.minimum(np.searchsorted(ends, steps, side="right"), len(ends) - 1)
        places = spans[:, None] * BINS + bins
        weights = np.repeat(numbers / QUANTILES, QUANTILES)
        found += np.bincount(places.ravel(), weights, len(ends) * BINS).reshape(len(ends), BINS)
    return found


def quantile(counts: Floats, share: float) -> float:
    """Returns the upper edge (s) of the bin in which that share of all is reached; NaN of nobody."""
    total = counts.sum()
    if not total:
        return float("nan")
    return float(EDGES[1 + np.searchsorted(np.cumsum(counts), share * total)])
