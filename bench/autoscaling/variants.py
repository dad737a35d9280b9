"""What is compared: thresholds and times that differ, each from the manifests in one thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.autoscaling.cluster import Scene
from bench.autoscaling.hpa import DEFAULT, Behaviour, Policy, Rules
from bench.autoscaling.manifests import Autoscalers
from bench.autoscaling.scenes import GPU, STARTS_S, of_many

TARGETS = (8, 16, 32, 64, 128, 256)
MANY = 32
"""Inputs of a large request: as many as an entry has at most."""

UTILIZATIONS = (0.5, 0.6, 0.7, 0.8, 0.9)
CHOSEN = "as chosen"


@dataclass(frozen=True, slots=True)
class Variant:
    """One day to simulate: of which table it is a row, what differs, and the cluster with its autoscalers."""

    table: str
    device: str
    what: str
    scene: Scene
    autoscalers: Autoscalers


def variants(scenes: dict[str, Scene], chosen: dict[str, Autoscalers]) -> Iterator[Variant]:
    """Yields all, by table."""
    for device, scene in scenes.items():
        yield Variant("day", device, CHOSEN, scene, chosen[device])
        for target in TARGETS:
            with_target = _with_target(chosen[device], target)
            for start_s in STARTS_S:
                late = replace(scene, worker_start_s=start_s)
                yield Variant("target", device, f"{target}, {start_s:g} s", late, with_target)
            yield Variant("many", device, str(target), of_many(scene, MANY), with_target)
        for name, behaviour in behaviours(chosen[device].workers.behaviour).items():
            workers = replace(chosen[device].workers, behaviour=behaviour)
            yield Variant("behaviour", device, name, scene, replace(chosen[device], workers=workers))
    for share in UTILIZATIONS:
        gateways = replace(chosen[GPU].gateways, target=share)
        yield Variant("gateways", GPU, f"{share:.0%}", scenes[GPU], replace(chosen[GPU], gateways=gateways))


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


def _with_target(autoscalers: Autoscalers, target: float) -> Autoscalers:
    return replace(autoscalers, workers=replace(autoscalers.workers, target=float(target)))
