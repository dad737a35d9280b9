"""What is compared: thresholds and times that differ, each from the manifests in one thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.autoscaling.cluster import Outage, Scene
from bench.autoscaling.hpa import DEFAULT, Behaviour, Policy, Rules
from bench.autoscaling.keda import Fallback, ScaledObject
from bench.autoscaling.manifests import Autoscalers, Utilization
from bench.autoscaling.scenarios import CPU, GPU, STARTS_S, of_many
from bench.autoscaling.traffic import HOUR_S

TARGETS = (8, 16, 32, 64, 128, 256)
MANY = 32
"""Inputs of a large request: as many as an entry has at most."""

UTILIZATIONS = (0.4, 0.5, 0.6, 0.7, 0.8)
UNBOUND = 64
"""More pods than any threshold asks for: what a threshold costs is not to be cut off by a maximum."""

ENOUGH = Utilization(1.0, 30, 30)
"""So many gateways that they hold nobody up: of workers' thresholds workers are to be seen."""

AWAY_AT_S, AWAY_S = 14.5 * HOUR_S, (300.0, 1_800.0)
CHOSEN = "as chosen"


@dataclass(frozen=True, slots=True)
class Variant:
    """A day to simulate: of which table it is a row, what differs, and the cluster with its autoscalers.

    There are `times` as many of such days as of others: few are slow, and by chance.
    """

    table: str
    device: str
    what: str
    scene: Scene
    autoscalers: Autoscalers
    times: int = 1


def variants(scenes: dict[str, Scene], chosen: dict[str, Autoscalers]) -> Iterator[Variant]:
    """Yields all, by table."""
    for device, scene in scenes.items():
        yield Variant("day", device, CHOSEN, scene, chosen[device])
        yield from _of_workers(device, scene, chosen[device].workers)
    workers = replace(chosen[GPU].workers, least=chosen[GPU].workers.most)
    for share in UTILIZATIONS:
        gateways = replace(chosen[GPU].gateways, target=share, most=UNBOUND)
        yield Variant("gateways", GPU, f"{share:.0%}", scenes[GPU], Autoscalers(workers, gateways), times=2)
    for away_s in AWAY_S:
        away = replace(scenes[CPU], outage=Outage(AWAY_AT_S, away_s))
        for name, fallback in fallbacks(chosen[CPU].workers.fallback).items():
            autoscalers = Autoscalers(replace(chosen[CPU].workers, fallback=fallback), ENOUGH)
            yield Variant("outage", CPU, f"{away_s / 60:g} min, {name}", away, autoscalers)


def fallbacks(chosen: Fallback | None) -> dict[str, Fallback | None]:
    """Returns what is chosen for the time when Redis cannot be asked, none, and as many as there are at least."""
    return {CHOSEN: chosen, "no fallback": None, "static, 1": Fallback(3, 1)}


def _of_workers(device: str, scene: Scene, chosen: ScaledObject) -> Iterator[Variant]:
    for target in TARGETS:
        workers = replace(chosen, target=float(target))
        unbound = Autoscalers(replace(workers, most=UNBOUND), ENOUGH)
        for start_s in STARTS_S:
            late = replace(scene, worker_start_s=start_s)
            yield Variant("target", device, f"{target}, {start_s:g} s", late, unbound)
        yield Variant("many", device, str(target), of_many(scene, MANY), Autoscalers(workers, ENOUGH))
    for name, behaviour in behaviours(chosen.behaviour).items():
        autoscalers = Autoscalers(replace(chosen, behaviour=behaviour), ENOUGH)
        yield Variant("behaviour", device, name, scene, autoscalers)


def behaviours(chosen: Behaviour) -> dict[str, Behaviour]:
    """Returns what is chosen, and what differs from it in one direction."""
    return {
        CHOSEN: chosen,
        "down: Kubernetes' default": replace(chosen, down=DEFAULT.down),
        "down: no window": replace(chosen, down=replace(chosen.down, stabilization_s=0.0)),
        "down: 300 s": replace(chosen, down=replace(chosen.down, stabilization_s=300.0)),
        "down: 1,800 s": replace(chosen, down=replace(chosen.down, stabilization_s=1_800.0)),
        "down: all at once": replace(chosen, down=replace(chosen.down, policies=DEFAULT.down.policies)),
        "up: Kubernetes' default": replace(chosen, up=DEFAULT.up),
        "up: one pod a minute": replace(chosen, up=Rules(0.0, (Policy("Pods", 1, 60.0),))),
        "up: after 60 s": replace(chosen, up=replace(chosen.up, stabilization_s=60.0)),
        "both: Kubernetes' default": DEFAULT,
    }
