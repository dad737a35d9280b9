"""A day's requests: a night, a rise to ten times its rate by the afternoon, an evening, and a flash crowd."""

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
"""The load at these hours as a multiple of the night's load; it is linear between them."""

SWING, SWING_S = 0.1, 30.0
"""Besides the Poisson noise, the rate itself varies with a standard deviation of a tenth; a deviation decays in half a
minute."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """A flash crowd: from `at_s` on the load rises within `rise_s` by `more` times the night's load, for `for_s`."""

    at_s: float = 20.5 * HOUR_S
    rise_s: float = 20.0
    for_s: float = 900.0
    more: float = 5.0


def levels(times_s: NDArray[np.float64], crowd: Crowd) -> NDArray[np.float64]:
    """Returns the expected load at each time, as a multiple of the night's load."""
    usual = np.interp(times_s / HOUR_S, HOURS, LEVELS)
    since = times_s - crowd.at_s
    rising = np.clip(since / crowd.rise_s, 0.0, 1.0) * (since < crowd.for_s)
    return np.asarray(usual + crowd.more * rising)


def arrivals(night_per_s: float, crowd: Crowd, seed: int, day_s: float = DAY_S) -> NDArray[np.int64]:
    """Returns the number of requests that arrive in each step of a day. The same seed gives the same day."""
    random = np.random.default_rng(seed)
    times_s = np.arange(0.0, day_s, STEP_S)
    expected = night_per_s * STEP_S * levels(times_s, crowd)
    return random.poisson(expected * _rate_factors(len(times_s), random))


def _rate_factors(steps: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Returns factors around 1, a log-normal first-order autoregression with the time constant SWING_S."""
    decay = float(np.exp(-STEP_S / SWING_S))
    noise = random.normal(0.0, SWING * (1 - decay**2) ** 0.5, steps)
    logs, log = np.empty(steps), random.normal(0.0, SWING)
    for step, innovation in enumerate(noise):
        log = decay * log + innovation
        logs[step] = log
    return np.asarray(np.exp(logs - SWING**2 / 2))
