"""Who asks, and when. Everything by seed."""

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
"""In the course of a day the rate swings by half around its mean. A day is as long as a run."""

START_GAP_S = 1e-6
LOADS = (*ARRIVALS, "diurnal")


def diurnal(rate: float, random: Random, day_s: float) -> Iterator[float]:
    """Yields Poisson arrivals whose rate swings like a sine, up and down by SWING in a day."""
    highest = rate * (1 + SWING)
    for at_s in poisson(highest, random):
        if random.random() * highest <= rate * (1 + SWING * math.sin(2 * math.pi * at_s / day_s)):
            yield at_s


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one input each.

    Attributes:
        arrivals: when they are sent, in order, in seconds; those after `until_s` are not.
        until_s: when the run ends: what was sent before is still answered.
        warmup_s: what is sent before is not measured.
        again: whether each client sends its next request when it has its answer, until the end.
        think_s: mean of the exponentially distributed time that it takes for that.
    """

    arrivals: Iterator[float]
    until_s: float
    warmup_s: float = 0.0
    again: bool = False
    think_s: float = 0.0


def open_loop(load: str, rate: float, requests: int, seed: int) -> Traffic:
    """Returns about so many requests under one of LOADS: a whole day, or whole bursts with the pauses between them."""
    random, until_s = Random(seed), requests / rate  # noqa: S311 - no secrets
    if load == "diurnal":
        return Traffic(diurnal(rate, random, until_s), until_s)
    if load == "bursty":
        period_s = BURST_ON_S + BURST_OFF_S
        until_s = period_s * math.ceil(until_s / period_s)
    return Traffic(ARRIVALS[load](rate, random), until_s)


def closed_loop(clients: int, until_s: float, warmup_s: float, think_s: float = 0.0) -> Traffic:
    """Returns clients that begin at once and ask again and again."""
    return Traffic((i * START_GAP_S for i in range(clients)), until_s, warmup_s, again=True, think_s=think_s)


def at_once(requests: int) -> Traffic:
    """Returns so many requests, all sent at the start."""
    return Traffic(iter([0.0] * requests), START_GAP_S)


def lengths(kind: Literal["one", "mixed"], seed: int) -> Iterator[int]:
    """Yields the tokens of inputs: one each, or log-normal as the mixed texts of `redbatch bench`."""
    if kind == "one":
        return repeat(1)
    return _mixed(Random(seed))  # noqa: S311 - no secrets


def _mixed(random: Random) -> Iterator[int]:
    mu, (least, most) = math.log(MIXED_MEAN_TOKENS) - MIXED_SIGMA**2 / 2, MIXED_TOKENS
    while True:
        yield min(most, max(least, round(random.lognormvariate(mu, MIXED_SIGMA))))
