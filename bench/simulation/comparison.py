"""The adaptive wait beside all fixed ones: every device, every load, at several levels."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from statistics import fmean, stdev

from bench.simulation.cluster import simulate
from bench.simulation.figures import Figures, figures
from bench.simulation.setup import DEVICES, PATHS, Device, Path, Setup
from bench.simulation.traffic import LOADS, Traffic, at_once, closed_loop, open_loop

FIXED_MS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
LEVELS = (0.3, 0.6, 0.8, 0.95, 1.1)
CLIENTS = (8, 64, 256)
CLOSED = "closed"
WITHIN = 0.02
TIE = 0.005
"""Two settings whose figures differ by less are as good as each other."""

REQUESTS = 8_000
SEEDS = 3
JUDGES = 8
BACKLOG = 3_000
WARMUP = 0.2
MIN_ROUNDS = 20
MIN_S = 4.0
"""What a fast device does in one second says little about its tail."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long it is looked at: the least requests and seconds of a run; and the runs, each with a seed of its own.

    `seeds` of them have all settings, and the fixed wait that does best in them against the adaptive one is its rival.
    The best of several is partly the luckiest, so the two meet again in `judges` runs with other seeds: these count.
    """

    requests: int = REQUESTS
    seeds: int = SEEDS
    judges: int = JUDGES
    min_s: float = MIN_S


@dataclass(frozen=True, slots=True)
class Scene:
    """A device under a load: a share of its capacity, or, of a closed loop, the clients."""

    device: str
    load: str
    level: float


@dataclass(frozen=True, slots=True)
class Short:
    """How far the adaptive wait stays behind a fixed one, with the standard error of that."""

    share: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether it is more than allowed, and more than chance."""
        return self.share - 2 * self.error > WITHIN


@dataclass(frozen=True, slots=True)
class Result:
    """What the settings gave in a scene, run by run: the adaptive wait, and each fixed one by its milliseconds.

    `judged` are the runs that count, of the adaptive wait and of its rival. `simulated_s` is the time that was
    simulated, with so many `requests`, and `wall_s` what that took.
    """

    scene: Scene
    adaptive: list[Figures]
    fixed: dict[float, list[Figures]]
    rival_ms: float
    judged: tuple[list[Figures], list[Figures]]
    simulated_s: float
    requests: int
    wall_s: float

    @property
    def short(self) -> Short:
        """How far the adaptive wait stays behind its rival."""
        return short(self.scene, *self.judged)

    @property
    def best_ms(self) -> float:
        """The fixed wait with the best p95, of those with the best throughput."""
        return best(self.fixed)


def short(scene: Scene, adaptive: Sequence[Figures], fixed: Sequence[Figures]) -> Short:
    """Returns by how much a fixed wait is better in throughput or p95, if it is as good in the other.

    Under more than a device can do, latency only says how long that has lasted, and throughput alone counts.
    """
    overload = scene.load != CLOSED and scene.level > 1
    faster = _ratio([theirs.per_s / mine.per_s for mine, theirs in zip(adaptive, fixed, strict=True)])
    sooner = _ratio([mine.p95_ms / theirs.p95_ms for mine, theirs in zip(adaptive, fixed, strict=True)])
    found = [Short(0.0, 0.0)]
    if overload or sooner.share >= -TIE:
        found.append(faster)
    if not overload and faster.share >= -TIE:
        found.append(sooner)
    return max(found, key=lambda each: each.share)


def best(fixed: Mapping[float, Sequence[Figures]]) -> float:
    """Returns the fixed wait with the best p95, of those with the best throughput."""
    means = {ms: mean(runs) for ms, runs in fixed.items()}
    most = max(each.per_s for each in means.values())
    return min((ms for ms in means if means[ms].per_s >= most * (1 - TIE)), key=lambda ms: means[ms].p95_ms)


def rival(scene: Scene, adaptive: Sequence[Figures], fixed: Mapping[float, Sequence[Figures]]) -> float:
    """Returns the fixed wait that the adaptive one stays behind the most; the best of all where it does so of none."""
    behind = {ms: short(scene, adaptive, runs).share for ms, runs in fixed.items()}
    worst = max(behind, key=lambda ms: behind[ms])
    return worst if behind[worst] > 0 else best(fixed)


def _ratio(ratios: Sequence[float]) -> Short:
    error = stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    return Short(fmean(ratios) - 1, error)


def scenes(device: str) -> Iterator[Scene]:
    """Yields all loads and levels of a device."""
    for load in LOADS:
        for level in LEVELS:
            yield Scene(device, load, level)
    for clients in CLIENTS:
        yield Scene(device, CLOSED, clients)


def compare(scene: Scene, effort: Effort) -> Result:
    """Simulates a scene with each setting, and judges; the same arrivals and lengths for all that are compared."""
    began_s, simulated_s, requests = time.perf_counter(), 0.0, 0

    def runs(wait_ms: float | None, seeds: Iterable[int]) -> list[Figures]:
        nonlocal simulated_s, requests
        found = []
        for seed in seeds:
            run, seconds, number = _run(scene, wait_ms, effort, seed)
            found.append(run)
            simulated_s, requests = simulated_s + seconds, requests + number
        return found

    seeds = range(1, effort.seeds + 1)
    adaptive, fixed = runs(None, seeds), {ms: runs(ms, seeds) for ms in FIXED_MS}
    rival_ms = rival(scene, adaptive, fixed)
    others = range(effort.seeds + 1, effort.seeds + effort.judges + 1)
    judged = runs(None, others), runs(rival_ms, others)
    return Result(scene, adaptive, fixed, rival_ms, judged, simulated_s, requests, time.perf_counter() - began_s)


def _run(scene: Scene, wait_ms: float | None, effort: Effort, seed: int) -> tuple[Figures, float, int]:
    """Returns the figures of one run, how long it lasted, and its requests."""
    path = PATHS.get(scene.device, Path())
    setup = Setup(DEVICES[scene.device], path, None if wait_ms is None else wait_ms / 1000)
    traffic = _traffic(scene, effort, seed)
    outcome = simulate(setup, traffic, seed)
    ended_s = max(each.answered_s or 0.0 for each in outcome.requests)
    return figures(outcome, traffic.warmup_s, traffic.until_s), ended_s, len(outcome.requests)


def _traffic(scene: Scene, effort: Effort, seed: int) -> Traffic:
    most = capacity(scene.device)
    if scene.load != CLOSED:
        rate = scene.level * most
        return open_loop(scene.load, rate, max(effort.requests, round(effort.min_s * rate)), seed)
    clients = int(scene.level)
    until_s = max(effort.min_s, max(effort.requests, MIN_ROUNDS * clients) / most)
    return closed_loop(clients, until_s, WARMUP * until_s)


def capacity(device: str) -> float:
    """Returns the requests a second of the device of that name: see capacity_of."""
    return capacity_of(DEVICES[device])


@cache
def capacity_of(device: Device) -> float:
    """Returns the requests a second of a device that always has a full window to choose from."""
    setup = Setup(device, Path(0.0, 0.0, 0.0, 0.0), timeout_s=1e9)
    outcome = simulate(setup, at_once(BACKLOG))
    return BACKLOG / max(each.answered_s or 0.0 for each in outcome.requests)


def mean(runs: Sequence[Figures]) -> Figures:
    """Returns the mean of each figure."""
    return Figures(*(fmean(getattr(run, field.name) for run in runs) for field in fields(Figures)))
