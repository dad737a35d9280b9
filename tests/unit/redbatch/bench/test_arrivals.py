"""When the requests of an open loop are due."""

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
def test_the_mean_rate_is_the_one_asked_for(kind: str, seed: int) -> None:
    """Over whole periods it is met within 2 %: four standard deviations of so many arrivals."""
    arrivals = takewhile(lambda at_s: at_s < LONG_S, ARRIVALS[kind](RATE, Random(seed)))
    assert sum(1 for _ in arrivals) / LONG_S == pytest.approx(RATE, rel=0.02)


@pytest.mark.parametrize("kind", ["poisson", "bursty"])
def test_they_come_in_order_and_the_seed_decides(kind: str) -> None:
    """Times never go back; the same seed gives the same ones, another gives others."""
    first, again, other = (list(islice(ARRIVALS[kind](RATE, Random(seed)), 1_000)) for seed in (1, 1, 2))
    assert first == sorted(first)
    assert first == again
    assert first != other


def test_poisson_gaps_are_exponential() -> None:
    """The gaps' mean is their standard deviation, and 1/e of them are longer than it."""
    gaps_s = [b - a for a, b in pairwise(islice(poisson(RATE, Random(3)), 40_000))]
    assert fmean(gaps_s) == pytest.approx(1 / RATE, rel=0.02)
    assert pstdev(gaps_s) == pytest.approx(1 / RATE, rel=0.03)
    assert sum(gap_s > 1 / RATE for gap_s in gaps_s) / len(gaps_s) == pytest.approx(0.368, abs=0.01)


def test_bursts_hold_all_arrivals_at_four_times_the_rate() -> None:
    """Each period begins with its burst; nothing is due between two."""
    arrivals = list(takewhile(lambda at_s: at_s < LONG_S, bursty(RATE, Random(4))))
    assert max(at_s % PERIOD_S for at_s in arrivals) < BURST_ON_S
    per_burst = Counter(int(at_s / PERIOD_S) for at_s in arrivals)
    assert len(per_burst) == LONG_S / PERIOD_S
    assert fmean(per_burst.values()) / BURST_ON_S == pytest.approx(4 * RATE, rel=0.02)


def test_a_schedule_ends_with_the_duration() -> None:
    """The warmup comes before it and is part of the load."""
    assert list(schedule(iter([0.5, 1.0, 2.9, 3.0, 3.1]), 1.0, 2.0, None)) == [0.5, 1.0, 2.9]


def test_a_schedule_ends_after_so_many_measured_requests() -> None:
    """Those of the warmup do not count."""
    assert list(schedule(iter([0.5, 0.9, 1.0, 2.0, 3.0]), 1.0, None, 2)) == [0.5, 0.9, 1.0, 2.0]
