"""What is simulated: workers as they were measured or are assumed, thresholds, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench import results
from bench.autoscaling.day import DAY_S, PEAK, level
from bench.autoscaling.fleet import Fleet, Load, Outcome, Worker
from bench.autoscaling.hpa import Policy, Rules
from bench.autoscaling.keda import ScaledObject, Scaler

BUSY = 0.8
"""Of what workers can do, what one would have them do all day if the load were known beforehand."""

AT_PEAK = 6
"""Workers that the peak needs then."""

POD_S = 60.0
"""Assumed of a pod besides its process: scheduling, the image, on a node that has been there."""

SLOW_S = 1.0
TARGETS = (8, 16, 32, 64, 128, 256)
STARTS_S = (10.0, 60.0, 300.0)
DOWN: Mapping[str, Rules] = {
    "Kubernetes' default": Rules(300, [Policy("Percent", 100, 15)]),
    "quick": Rules(60, [Policy("Percent", 100, 15)]),
}
ASSUMED = {
    "GPU, 0.5 k/s": Worker(0.010, 0.002, 0),
    "GPU, 3 k/s": Worker(0.005, 0.00025, 0),
    "GPU, 8 k/s": Worker(0.005, 0.00005, 0),
}
"""No GPU was measured: base and each input of a batch, from a large model to a small one."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One day. `down` names how workers are taken away: as the manifest says, or as something in DOWN."""

    worker: str
    start_s: float
    target: float
    down: str = "manifest"


def workers(found: results.Results) -> dict[str, Worker]:
    """Returns the workers by name: the CPU's as `make bench` measured MiniLM with mixed texts, and what is assumed."""
    rows = {
        row["of"]["clients"]: row["figures"]
        for row in found["parts"]["real"]["tables"]["real"]
        if row["of"]["mix"] == "mixed"
    }
    each_s = 1 / _median(rows[max(rows)], "requests_per_s")
    base_s = _median(rows[1], "p50_ms") / 1000 - each_s
    return {"CPU, measured": Worker(base_s, each_s, 0)} | ASSUMED


def request_cpu_s(found: results.Results) -> float:
    """Returns what a request costs a gateway of CPU, as `make bench` measured it with the null model and 64 clients."""
    (row,) = [
        row["figures"]
        for row in found["parts"]["plumbing"]["tables"]["plumbing"]
        if row["of"] == {"gateways": 1, "clients": 64}
    ]
    return _median(row, "cpu_us.gateway") / 1e6


def _median(figures: Mapping[str, Any], name: str) -> float:
    return float(figures[name]["median"])


def load_of(worker: Worker) -> Load:
    """Returns the day whose peak AT_PEAK such workers would manage."""
    night = AT_PEAK * BUSY * worker.per_s / PEAK
    return lambda now: night * level(now)


def ideal_hours(worker: Worker) -> float:
    """Returns the worker hours of the day if the load were known beforehand and workers came in parts."""
    load = load_of(worker)
    return sum(load(minute * 60) for minute in range(round(DAY_S / 60))) / 60 / worker.per_s / BUSY


def scenes(names: Sequence[str], target: float) -> list[Scene]:
    """Returns the days: each target for each start, and at one target each way down."""
    swept = [Scene(name, start_s, target) for name in names for start_s in STARTS_S for target in TARGETS]
    ways = [Scene(name, STARTS_S[1], target, down) for name in names for down in DOWN]
    return swept + ways


def simulate(scene: Scene, worker: Worker, scaled: ScaledObject, seed: int = 0) -> Outcome:
    """Returns what comes of a day."""
    behaviour = scaled.behaviour
    if scene.down in DOWN:
        behaviour = replace(behaviour, down=DOWN[scene.down])
    scaler = Scaler(replace(scaled, target=scene.target, behaviour=behaviour))
    fleet = Fleet(replace(worker, start_s=scene.start_s), scaler.replicas, max(1, scaled.least), seed)
    return fleet.run(load_of(worker), DAY_S)


def row(scene: Scene, found: Mapping[str, Worker], scaled: ScaledObject) -> dict[str, Any]:
    """Simulates a day; returns what it was and what came of it, as JSON has it."""
    outcome = simulate(scene, found[scene.worker], scaled)
    return {
        "worker": scene.worker,
        "start_s": scene.start_s,
        "target": scene.target,
        "down": scene.down,
        "p50_s": round(outcome.percentile(0.5), 4),
        "p99_s": round(outcome.percentile(0.99), 4),
        "slow_share": round(outcome.slower_than(SLOW_S), 6),
        "refused_share": round(outcome.refused / outcome.arrived, 6),
        "worker_hours": round(outcome.worker_hours, 1),
        "ideal_hours": round(ideal_hours(found[scene.worker]), 1),
    }


def rower(found: Mapping[str, Worker], scaled: ScaledObject) -> partial[dict[str, Any]]:
    """Returns `row` for a pool of processes."""
    return partial(row, found=found, scaled=scaled)
