"""A day's requests: a night, a morning that rises to ten times as many, an evening, and a crowd that comes at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
STEP_S = 1.0
PEAK = 10.0

HOURS = (0.0, 5.0, 7.0, 9.0, 10.5, 12.5, 14.5, 17.0, 19.0, 22.0, 24.0)
LEVELS = (1.0, 1.0, 3.0, 8.0, 9.0, 8.0, PEAK, 8.0, 4.0, 2.0, 1.0)
"""Times the night's load; between these hours it goes straight from one to the next."""

SWING, SWING_S = 0.1, 30.0
"""Beside chance (Poisson) the rate swings by a tenth (standard deviation), which half a minute takes back."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many at once: `more` times the night's load is added from `at_s` on, within `rise_s`, and goes after `for_s`."""

    at_s: float = 20.5 * HOUR_S
    rise_s: float = 20.0
    for_s: float = 900.0
    more: float = 5.0


def levels(times_s: NDArray[np.float64], crowd: Crowd) -> NDArray[np.float64]:
    """Returns how many times the night's load is expected at each time."""
    usual = np.interp(times_s / HOUR_S, HOURS, LEVELS)
    since = times_s - crowd.at_s
    rising = np.clip(since / crowd.rise_s, 0.0, 1.0) * (since < crowd.for_s)
    return np.asarray(usual + crowd.more * rising)


def arrivals(night_per_s: float, crowd: Crowd, seed: int, day_s: float = DAY_S) -> NDArray[np.int64]:
    """Returns how many requests come in each step of a day. The same seed, the same day."""
    random = np.random.default_rng(seed)
    times_s = np.arange(0.0, day_s, STEP_S)
    expected = night_per_s * STEP_S * levels(times_s, crowd)
    return random.poisson(expected * _swings(len(times_s), random))


def _swings(steps: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Returns factors around 1 that forget where they were in about SWING_S."""
    keep = float(np.exp(-STEP_S / SWING_S))
    pushes = random.normal(0.0, SWING * (1 - keep**2) ** 0.5, steps)
    found, at = np.empty(steps), random.normal(0.0, SWING)
    for step, push in enumerate(pushes):
        at = keep * at + push
        found[step] = at
    return np.asarray(np.exp(found - SWING**2 / 2))
