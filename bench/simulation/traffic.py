"""The arrival times and the lengths of requests. Everything is determined by a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import Literal

from redbatch.bench.arrivals import ARRIVALS, BURST_OFF_S, BURST_ON_S, poisson
from redbatch.bench.texts import MIXED_MEAN_TOKENS, MIXED_SIGMA, MIXED_TOKENS

SWING = 0.5
"""Amplitude of the daily variation: the rate varies by half around its mean. A day has the length of a run."""

START_GAP_S = 1e-6
LOADS = (*ARRIVALS, "diurnal")


def diurnal(rate: float, random: Random, day_s: float) -> Iterator[float]:
    """Yields Poisson arrivals with a sinusoidal rate of amplitude SWING, one period per day."""
    highest = rate * (1 + SWING)
    for at_s in poisson(highest, random):
        if random.random() * highest <= rate * (1 + SWING * math.sin(2 * math.pi * at_s / day_s)):
            yield at_s


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests and the times at which they are sent.

    Attributes:
        arrivals: send times (s) in ascending order; those after `until_s` are ignored.
        until_s: end of the run. Requests sent before it are still answered.
        warmup_s: requests sent before this time are not measured.
        is_closed: whether each client sends its next request after its answer, until the end.
        think_s: mean of the exponentially distributed time between an answer and the next request.
        inputs: of each request, the tokens of its inputs; None: one input, of the device's lengths.
    """

    arrivals: Iterator[float]
    until_s: float
    warmup_s: float = 0.0
    is_closed: bool = False
    think_s: float = 0.0
    inputs: Iterator[tuple[int, ...]] | None = None


def open_loop(load: str, rate: float, requests: int, seed: int) -> Traffic:
    """Returns about `requests` requests under one of LOADS: a whole day, or whole bursts with their pauses."""
    random, until_s = Random(seed), requests / rate  # noqa: S311 - no secrets
    if load == "diurnal":
        return Traffic(diurnal(rate, random, until_s), until_s)
    if load == "bursty":
        period_s = BURST_ON_S + BURST_OFF_S
        until_s = period_s * math.ceil(until_s / period_s)
    return Traffic(ARRIVALS[load](rate, random), until_s)


def closed_loop(clients: int, until_s: float, warmup_s: float, think_s: float = 0.0) -> Traffic:
    """Returns clients that all start at once, and each send the next request after the answer."""
    return Traffic((i * START_GAP_S for i in range(clients)), until_s, warmup_s, is_closed=True, think_s=think_s)


def at_once(requests: int) -> Traffic:
    """Returns `requests` requests, all sent at the start."""
    return Traffic(iter([0.0] * requests), START_GAP_S)


def lengths(kind: Literal["one", "mixed"], seed: int) -> Iterator[int]:
    """Yields the tokens of each input: always one, or log-normal as the mixed texts of `redbatch bench`."""
    if kind == "one":
        return repeat(1)
    return _mixed(Random(seed))  # noqa: S311 - no secrets


def _mixed(random: Random) -> Iterator[int]:
    mu, (min_tokens, max_tokens) = math.log(MIXED_MEAN_TOKENS) - MIXED_SIGMA**2 / 2, MIXED_TOKENS
    while True:
        yield min(max_tokens, max(min_tokens, round(random.lognormvariate(mu, MIXED_SIGMA))))
