"""Comparison of the adaptive wait with all fixed ones, on every device, under every load, at several levels."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from statistics import fmean, stdev

from bench.simulation.cluster import simulate
from bench.simulation.figures import Figures, figures
from bench.simulation.setup import DEVICES, PATHS, Device, RequestPath, Setup
from bench.simulation.traffic import LOADS, Traffic, at_once, closed_loop, open_loop

FIXED_MS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
LEVELS = (0.3, 0.6, 0.8, 0.95, 1.1)
CLIENTS = (8, 64, 256)
CLOSED = "closed"
MAX_SHORTFALL = 0.02
TIE = 0.005
"""Two settings whose figures differ by less than this share count as equal."""

REQUESTS = 8_000
SEEDS = 3
FINAL_RUNS = 8
BACKLOG = 3_000
WARMUP = 0.2
MIN_ROUNDS = 20
MIN_S = 4.0
"""Minimum duration of a run: one second of a fast device says little about its tail latency."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The size of the comparison: the minimum requests and seconds of a run, and the number of runs, one per seed.

    `seeds` runs compare all settings; the fixed wait that does best in them against the adaptive one is its rival. The
    best of several is partly the luckiest, so the two are compared again in `final_runs` runs with other seeds: these
    count.
    """

    requests: int = REQUESTS
    seeds: int = SEEDS
    final_runs: int = FINAL_RUNS
    min_s: float = MIN_S


@dataclass(frozen=True, slots=True)
class Scenario:
    """A device under a load. `level` is a share of its capacity or, in a closed loop, the number of clients."""

    device: str
    load: str
    level: float


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The share by which the adaptive wait is worse than a fixed one, with its standard error."""

    share: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether it is above the allowed share by more than two standard errors."""
        return self.share - 2 * self.error > MAX_SHORTFALL


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of all runs of a scenario: of the adaptive wait, and of each fixed wait by its milliseconds.

    `final` has the final runs, of the adaptive wait and of its rival. `simulated_s` is the simulated time of all runs,
    `requests` their number of requests, and `wall_s` the time that the simulation took.
    """

    scenario: Scenario
    adaptive: list[Figures]
    fixed: dict[float, list[Figures]]
    rival_ms: float
    final: tuple[list[Figures], list[Figures]]
    simulated_s: float
    requests: int
    wall_s: float

    @property
    def shortfall(self) -> Shortfall:
        """The shortfall of the adaptive wait against its rival."""
        return shortfall(self.scenario, *self.final)

    @property
    def best_ms(self) -> float:
        """The fixed wait with the best p95, of those with the best throughput."""
        return best(self.fixed)


def shortfall(scenario: Scenario, adaptive: Sequence[Figures], fixed: Sequence[Figures]) -> Shortfall:
    """Returns the share by which a fixed wait is better in throughput or p95, if it is not worse in the other.

    In overload the latency only reflects the duration of the overload, so throughput alone counts.
    """
    overload = scenario.load != CLOSED and scenario.level > 1
    in_rate = _ratio([theirs.per_s / ours.per_s for ours, theirs in zip(adaptive, fixed, strict=True)])
    in_latency = _ratio([ours.p95_ms / theirs.p95_ms for ours, theirs in zip(adaptive, fixed, strict=True)])
    shortfalls = [Shortfall(0.0, 0.0)]
    if overload or in_latency.share >= -TIE:
        shortfalls.append(in_rate)
    if not overload and in_rate.share >= -TIE:
        shortfalls.append(in_latency)
    return max(shortfalls, key=lambda each: each.share)


def best(fixed: Mapping[float, Sequence[Figures]]) -> float:
    """Returns the fixed wait (ms) with the best p95, of those with the best throughput."""
    means = {ms: mean(runs) for ms, runs in fixed.items()}
    max_per_s = max(each.per_s for each in means.values())
    return min((ms for ms in means if means[ms].per_s >= max_per_s * (1 - TIE)), key=lambda ms: means[ms].p95_ms)


def rival(scenario: Scenario, adaptive: Sequence[Figures], fixed: Mapping[float, Sequence[Figures]]) -> float:
    """Returns the fixed wait (ms) against which the adaptive one falls shortest; the best one if there is none."""
    shares = {ms: shortfall(scenario, adaptive, runs).share for ms, runs in fixed.items()}
    worst = max(shares, key=lambda ms: shares[ms])
    return worst if shares[worst] > 0 else best(fixed)


def _ratio(ratios: Sequence[float]) -> Shortfall:
    error = stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    return Shortfall(fmean(ratios) - 1, error)


def scenarios(device: str) -> Iterator[Scenario]:
    """Yields the scenarios of a device: all loads and levels."""
    for load in LOADS:
        for level in LEVELS:
            yield Scenario(device, load, level)
    for clients in CLIENTS:
        yield Scenario(device, CLOSED, clients)


def compare(scenario: Scenario, effort: Effort) -> Result:
    """Simulates a scenario with each setting, then the final runs. All settings get the same arrivals and lengths."""
    began_s, simulated_s, requests = time.perf_counter(), 0.0, 0

    def runs(wait_ms: float | None, seeds: Iterable[int]) -> list[Figures]:
        nonlocal simulated_s, requests
        all_figures = []
        for seed in seeds:
            run, seconds, num_requests = _run(scenario, wait_ms, effort, seed)
            all_figures.append(run)
            simulated_s, requests = simulated_s + seconds, requests + num_requests
        return all_figures

    seeds = range(1, effort.seeds + 1)
    adaptive, fixed = runs(None, seeds), {ms: runs(ms, seeds) for ms in FIXED_MS}
    rival_ms = rival(scenario, adaptive, fixed)
    other_seeds = range(effort.seeds + 1, effort.seeds + effort.final_runs + 1)
    final = runs(None, other_seeds), runs(rival_ms, other_seeds)
    return Result(scenario, adaptive, fixed, rival_ms, final, simulated_s, requests, time.perf_counter() - began_s)


def _run(scenario: Scenario, wait_ms: float | None, effort: Effort, seed: int) -> tuple[Figures, float, int]:
    """Returns the figures of one run, its simulated time (s), and its number of requests."""
    path = PATHS.get(scenario.device, RequestPath())
    setup = Setup(DEVICES[scenario.device], path, None if wait_ms is None else wait_ms / 1000)
    traffic = _traffic(scenario, effort, seed)
    outcome = simulate(setup, traffic, seed)
    ended_s = max(each.answered_s or 0.0 for each in outcome.requests)
    return figures(outcome, traffic.warmup_s, traffic.until_s), ended_s, len(outcome.requests)


def _traffic(scenario: Scenario, effort: Effort, seed: int) -> Traffic:
    max_per_s = capacity(scenario.device)
    if scenario.load != CLOSED:
        rate = scenario.level * max_per_s
        return open_loop(scenario.load, rate, max(effort.requests, round(effort.min_s * rate)), seed)
    clients = int(scenario.level)
    until_s = max(effort.min_s, max(effort.requests, MIN_ROUNDS * clients) / max_per_s)
    return closed_loop(clients, until_s, WARMUP * until_s)


def capacity(device: str) -> float:
    """Returns the capacity (requests per second) of the device of that name: see capacity_of."""
    return capacity_of(DEVICES[device])


@cache
def capacity_of(device: Device) -> float:
    """Returns the requests per second of a device whose claim window is always full."""
    setup = Setup(device, RequestPath(0.0, 0.0, 0.0, 0.0), timeout_s=1e9)
    outcome = simulate(setup, at_once(BACKLOG))
    return BACKLOG / max(each.answered_s or 0.0 for each in outcome.requests)


def mean(runs: Sequence[Figures]) -> Figures:
    """Returns the mean of each figure."""
    return Figures(*(fmean(getattr(run, field.name) for run in runs) for field in fields(Figures)))
