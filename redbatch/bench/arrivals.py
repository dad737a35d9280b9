"""Arrival times of the requests of an open loop: increasing seconds since the start, without end. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

BURST_ON_S = 0.5
BURST_OFF_S = 1.5
"""Each period of 2 s starts with a burst of four times the rate, so that the mean over whole periods is the rate."""


def poisson(rate: float, random: Random) -> Iterator[float]:
    """Yields independent arrivals: the gaps are exponentially distributed."""
    now_s = 0.0
    while True:
        now_s += random.expovariate(rate)
        yield now_s


def bursty(rate: float, random: Random) -> Iterator[float]:
    """Yields Poisson arrivals within bursts only: on for BURST_ON_S, off for BURST_OFF_S, and repeated."""
    period_s = BURST_ON_S + BURST_OFF_S
    for on_s in poisson(rate * period_s / BURST_ON_S, random):
        bursts, into_s = divmod(on_s, BURST_ON_S)
        yield bursts * period_s + into_s


ARRIVALS = {"poisson": poisson, "bursty": bursty}


def schedule(
    arrivals: Iterator[float], warmup_s: float, duration_s: float | None, requests: int | None
) -> Iterator[float]:
    """Yields the arrivals until `duration_s` after the warmup, or until there were `requests` arrivals after it."""
    measured = 0
    for at_s in arrivals:
        if duration_s is not None and at_s >= warmup_s + duration_s:
            return
        if at_s >= warmup_s:
            if requests is not None and measured == requests:
                return
            measured += 1
        yield at_s
