"""The days to compare: targets, behaviors, fallbacks and start times, each with one difference from the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.autoscaling.cluster import Outage, Scenario
from bench.autoscaling.hpa import DEFAULT, Behavior, ScalingPolicy, ScalingRules
from bench.autoscaling.keda import Fallback, ScaledObject
from bench.autoscaling.manifests import Autoscalers, CpuHpaSpec
from bench.autoscaling.scenarios import CPU, GPU, STARTS_S, with_large_requests
from bench.autoscaling.traffic import HOUR_S

TARGETS = (8, 16, 32, 64, 128, 256)
LARGE_REQUEST = 32
"""Inputs of a large request: the maximum of an entry."""

UTILIZATIONS = (0.4, 0.5, 0.6, 0.7, 0.8)
UNBOUNDED = 64
"""More pods than any target asks for, so that no maximum caps the cost of a target."""

AMPLE_GATEWAYS = CpuHpaSpec(1.0, 30, 30)
"""Enough gateways that they delay no request: the tables of workers' targets are to show the effect on workers only."""

OUTAGE_START_S, OUTAGE_DURATIONS_S = 14.5 * HOUR_S, (300.0, 1_800.0)
CHOSEN = "as chosen"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A day to simulate: the table of its row, its difference (`label`), and the cluster with its autoscalers.

    `seed_factor` multiplies the number of simulated days, where slow requests are few and subject to chance.
    """

    table: str
    device: str
    label: str
    scenario: Scenario
    autoscalers: Autoscalers
    seed_factor: int = 1


def experiments(scenarios: dict[str, Scenario], chosen: dict[str, Autoscalers]) -> Iterator[Experiment]:
    """Yields all experiments."""
    for device, scenario in scenarios.items():
        yield Experiment("day", device, CHOSEN, scenario, chosen[device])
        yield from _worker_experiments(device, scenario, chosen[device].workers)
    workers = replace(chosen[GPU].workers, min_replicas=chosen[GPU].workers.max_replicas)
    for share in UTILIZATIONS:
        gateways = replace(chosen[GPU].gateways, target=share, max_replicas=UNBOUNDED)
        yield Experiment("gateways", GPU, f"{share:.0%}", scenarios[GPU], Autoscalers(workers, gateways), seed_factor=2)
    for duration_s in OUTAGE_DURATIONS_S:
        with_outage = replace(scenarios[CPU], outage=Outage(OUTAGE_START_S, duration_s))
        for name, fallback in fallbacks(chosen[CPU].workers.fallback).items():
            autoscalers = Autoscalers(replace(chosen[CPU].workers, fallback=fallback), AMPLE_GATEWAYS)
            yield Experiment("outage", CPU, f"{duration_s / 60:g} min, {name}", with_outage, autoscalers)


def fallbacks(chosen: Fallback | None) -> dict[str, Fallback | None]:
    """Returns the fallbacks to compare for an outage of Redis: the chosen one, none, and the minimum of workers."""
    return {CHOSEN: chosen, "no fallback": None, "static, 1": Fallback(3, 1)}


def _worker_experiments(device: str, scenario: Scenario, chosen: ScaledObject) -> Iterator[Experiment]:
    for target in TARGETS:
        workers = replace(chosen, target=float(target))
        unbounded = Autoscalers(replace(workers, max_replicas=UNBOUNDED), AMPLE_GATEWAYS)
        for start_s in STARTS_S:
            with_start = replace(scenario, worker_start_s=start_s)
            yield Experiment("target", device, f"{target}, {start_s:g} s", with_start, unbounded)
        large = with_large_requests(scenario, LARGE_REQUEST)
        yield Experiment("many", device, str(target), large, Autoscalers(workers, AMPLE_GATEWAYS))
    for name, behavior in behaviors(chosen.behavior).items():
        autoscalers = Autoscalers(replace(chosen, behavior=behavior), AMPLE_GATEWAYS)
        yield Experiment("behavior", device, name, scenario, autoscalers)


def behaviors(chosen: Behavior) -> dict[str, Behavior]:
    """Returns the chosen behavior, others that differ from it in one direction, and Kubernetes' default."""
    return {
        CHOSEN: chosen,
        "down: Kubernetes' default": replace(chosen, down=DEFAULT.down),
        "down: no window": replace(chosen, down=replace(chosen.down, stabilization_window_s=0.0)),
        "down: 300 s": replace(chosen, down=replace(chosen.down, stabilization_window_s=300.0)),
        "down: 1,800 s": replace(chosen, down=replace(chosen.down, stabilization_window_s=1_800.0)),
        "down: all at once": replace(chosen, down=replace(chosen.down, policies=DEFAULT.down.policies)),
        "up: Kubernetes' default": replace(chosen, up=DEFAULT.up),
        "up: one pod a minute": replace(chosen, up=ScalingRules(0.0, (ScalingPolicy("Pods", 1, 60.0),))),
        "up: after 60 s": replace(chosen, up=replace(chosen.up, stabilization_window_s=60.0)),
        "both: Kubernetes' default": DEFAULT,
    }
