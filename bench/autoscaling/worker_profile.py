"""What one worker does at a load, latencies and what it holds: by the simulator that runs the product's batching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.simulation.cluster import simulate
from bench.simulation.comparison import capacity_of
from bench.simulation.setup import Device, Path, Setup
from bench.simulation.traffic import open_loop

LOADS = (0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of the capacity. Beyond the last one a queue grows, which `cluster` follows."""

QUANTILES = 100
MOMENTS = 500
WARMUP = 0.1
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Station:
    """A worker.

    Attributes:
        inputs_per_s: its capacity.
        loads: shares of it, rising.
        latency_s: for each load, QUANTILES latencies of requests of one input, evenly spread over their ranks.
        held: for each load, how many inputs are in its queue and in its hands on average.
        held_spread: the standard deviation of that.
    """

    inputs_per_s: float
    loads: Floats
    latency_s: Floats
    held: Floats
    held_spread: Floats

    @classmethod
    def even(cls, inputs_per_s: float, latency_s: float) -> Self:
        """Returns a worker that takes as long for each request at any load, and holds what it is at."""
        loads = np.array(LOADS)
        held = loads * inputs_per_s * latency_s
        return cls(inputs_per_s, loads, np.full((len(LOADS), QUANTILES), latency_s), held, np.zeros(len(LOADS)))

    def latencies(self, load: Floats) -> Floats:
        """Returns a row of QUANTILES latencies (s) for each load, by those of the loads next to it."""
        right = np.clip(np.searchsorted(self.loads, load), 1, len(self.loads) - 1)
        span = self.loads[right] - self.loads[right - 1]
        share = np.clip((load - self.loads[right - 1]) / span, 0.0, 1.0)[:, None]
        return np.asarray((1 - share) * self.latency_s[right - 1] + share * self.latency_s[right])

    def holds(self, load: float) -> tuple[float, float]:
        """Returns mean and standard deviation of what it holds; at no load, nothing."""
        share = min(1.0, load / self.loads[0])
        mean, spread = (float(np.interp(load, self.loads, each)) for each in (self.held, self.held_spread))
        return share * mean, share * spread


def measure(device: Device, path: Path, requests: int, seed: int = 1) -> Station:
    """Simulates one worker at each of LOADS, with at least so many requests of one input."""
    capacity = capacity_of(device)
    latencies, held, spread = [], [], []
    for load in LOADS:
        traffic = open_loop("poisson", load * capacity, requests, seed)
        outcome = simulate(Setup(device, path), traffic, seed)
        sent = np.array([each.sent_s for each in outcome.requests])
        answered = np.array([each.answered_s for each in outcome.requests if each.answered_s is not None])
        late = sent >= WARMUP * traffic.until_s
        ranks = (np.arange(QUANTILES) + 0.5) / QUANTILES
        latencies.append(np.quantile((answered - sent)[late], ranks))
        moments = np.linspace(WARMUP * traffic.until_s, traffic.until_s, MOMENTS)
        there = np.searchsorted(sent, moments) - np.searchsorted(np.sort(answered), moments)
        held.append(there.mean())
        spread.append(there.std())
    return Station(capacity, np.array(LOADS), np.array(latencies), np.array(held), np.array(spread))
