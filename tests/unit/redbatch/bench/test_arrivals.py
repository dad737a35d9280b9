"""Arrival times of an open loop."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise, takewhile
from random import Random
from statistics import fmean, pstdev

import pytest

from redbatch.bench.arrivals import ARRIVALS, BURST_OFF_S, BURST_ON_S, bursty, poisson, schedule

RATE = 200.0
PERIOD_S = BURST_ON_S + BURST_OFF_S
LONG_S = 200.0  # whole periods


@pytest.mark.parametrize("kind", ["poisson", "bursty"])
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_rate_is_the_given_one(kind: str, seed: int) -> None:
    """Over whole periods, the mean is within 2 % of the rate: four standard deviations of this number of arrivals."""
    arrivals = takewhile(lambda at_s: at_s < LONG_S, ARRIVALS[kind](RATE, Random(seed)))
    assert sum(1 for _ in arrivals) / LONG_S == pytest.approx(RATE, rel=0.02)


@pytest.mark.parametrize("kind", ["poisson", "bursty"])
def test_arrivals_are_ordered_and_determined_by_the_seed(kind: str) -> None:
    """Times never decrease; the same seed gives the same arrivals, and another seed others."""
    first, again, other = (list(islice(ARRIVALS[kind](RATE, Random(seed)), 1_000)) for seed in (1, 1, 2))
    assert first == sorted(first)
    assert first == again
    assert first != other


def test_poisson_gaps_are_exponential() -> None:
    """The mean of the gaps equals their standard deviation, and a fraction of 1/e of them is longer."""
    gaps_s = [b - a for a, b in pairwise(islice(poisson(RATE, Random(3)), 40_000))]
    assert fmean(gaps_s) == pytest.approx(1 / RATE, rel=0.02)
    assert pstdev(gaps_s) == pytest.approx(1 / RATE, rel=0.03)
    assert sum(gap_s > 1 / RATE for gap_s in gaps_s) / len(gaps_s) == pytest.approx(0.368, abs=0.01)


def test_bursts_hold_all_arrivals_at_four_times_the_rate() -> None:
    """Each period starts with its burst; nothing is due between two bursts."""
    arrivals = list(takewhile(lambda at_s: at_s < LONG_S, bursty(RATE, Random(4))))
    assert max(at_s % PERIOD_S for at_s in arrivals) < BURST_ON_S
    per_burst = Counter(int(at_s / PERIOD_S) for at_s in arrivals)
    assert len(per_burst) == LONG_S / PERIOD_S
    assert fmean(per_burst.values()) / BURST_ON_S == pytest.approx(4 * RATE, rel=0.02)


def test_a_schedule_ends_with_the_duration() -> None:
    """The warmup comes first and is part of the load."""
    assert list(schedule(iter([0.5, 1.0, 2.9, 3.0, 3.1]), 1.0, 2.0, None)) == [0.5, 1.0, 2.9]


def test_a_schedule_ends_after_the_number_of_measured_requests() -> None:
    """Requests of the warmup do not count."""
    assert list(schedule(iter([0.5, 0.9, 1.0, 2.0, 3.0]), 1.0, None, 2)) == [0.5, 0.9, 1.0, 2.0]
