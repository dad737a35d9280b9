"""Latency and occupancy of one worker at each load, from the simulator that runs the product's batching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.simulation.cluster import simulate
from bench.simulation.comparison import capacity_of
from bench.simulation.setup import Device, RequestPath, Setup
from bench.simulation.traffic import open_loop

LOADS = (0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of the capacity. Beyond the last one the queue grows; `cluster` simulates that queue."""

QUANTILES = 100
NUM_SAMPLES = 500
WARMUP = 0.1
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """Latency and occupancy of a worker by its load.

    Attributes:
        inputs_per_s: capacity of the worker.
        loads: shares of the capacity, in ascending order.
        latency_s: for each load, QUANTILES latencies of requests of one input, evenly spaced by rank.
        occupancy: for each load, the mean number of inputs in its queue and in the worker.
        occupancy_std: standard deviation of that number.
    """

    inputs_per_s: float
    loads: Floats
    latency_s: Floats
    occupancy: Floats
    occupancy_std: Floats

    @classmethod
    def constant(cls, inputs_per_s: float, latency_s: float) -> Self:
        """Returns a worker with the same latency at any load; its occupancy follows from Little's law."""
        loads = np.array(LOADS)
        occupancy = loads * inputs_per_s * latency_s
        return cls(inputs_per_s, loads, np.full((len(LOADS), QUANTILES), latency_s), occupancy, np.zeros(len(LOADS)))

    def latencies(self, load: Floats) -> Floats:
        """Returns a row of QUANTILES latencies (s) for each load, interpolated between the adjacent loads."""
        right = np.clip(np.searchsorted(self.loads, load), 1, len(self.loads) - 1)
        span = self.loads[right] - self.loads[right - 1]
        share = np.clip((load - self.loads[right - 1]) / span, 0.0, 1.0)[:, None]
        return np.asarray((1 - share) * self.latency_s[right - 1] + share * self.latency_s[right])

    def occupancy_at(self, load: float) -> tuple[float, float]:
        """Returns the mean and standard deviation of the occupancy at a load. Both are 0 at load 0."""
        share = min(1.0, load / self.loads[0])
        mean, std = (float(np.interp(load, self.loads, each)) for each in (self.occupancy, self.occupancy_std))
        return share * mean, share * std


def measure(device: Device, path: RequestPath, requests: int, seed: int = 1) -> WorkerProfile:
    """Simulates one worker at each of LOADS, with about `requests` requests of one input."""
    capacity = capacity_of(device)
    latencies, means, stds = [], [], []
    for load in LOADS:
        traffic = open_loop("poisson", load * capacity, requests, seed)
        outcome = simulate(Setup(device, path), traffic, seed)
        sent = np.array([each.sent_s for each in outcome.requests])
        answered = np.array([each.answered_s for each in outcome.requests if each.answered_s is not None])
        is_measured = sent >= WARMUP * traffic.until_s
        ranks = (np.arange(QUANTILES) + 0.5) / QUANTILES
        latencies.append(np.quantile((answered - sent)[is_measured], ranks))
        sample_times = np.linspace(WARMUP * traffic.until_s, traffic.until_s, NUM_SAMPLES)
        occupancy = np.searchsorted(sent, sample_times) - np.searchsorted(np.sort(answered), sample_times)
        means.append(occupancy.mean())
        stds.append(occupancy.std())
    return WorkerProfile(capacity, np.array(LOADS), np.array(latencies), np.array(means), np.array(stds))
