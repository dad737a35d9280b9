"""The autoscalers as k8s/ has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.autoscaling.hpa import Behaviour, Rules
from bench.autoscaling.keda import ScaledObject
from bench.machine import ROOT

WORKERS = ROOT / "k8s" / "components" / "keda" / "scaledobject.yaml"
GATEWAYS = ROOT / "k8s" / "base" / "gateway-hpa.yaml"


@dataclass(frozen=True, slots=True)
class Utilization:
    """An HPA by CPU: the share of its request that a pod is to use, and the HPA's behaviour."""

    target: float
    behaviour: Behaviour


def scaled_object(path: Path = WORKERS) -> ScaledObject:
    """Returns the one ScaledObject of a file, whose triggers have one target. Raises ValueError: they have several."""
    spec = _only(path, "ScaledObject")["spec"]
    (target,) = {float(trigger["metadata"]["streamLength"]) for trigger in spec["triggers"]}
    return ScaledObject(
        target=target,
        least=spec["minReplicaCount"],
        polling_s=spec["pollingInterval"],
        cooldown_s=spec["cooldownPeriod"],
        behaviour=_behaviour(
            max(1, spec["minReplicaCount"]),
            spec["maxReplicaCount"],
            spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        ),
    )


def utilization(path: Path = GATEWAYS) -> Utilization:
    """Returns the one HPA of a file, which is by CPU alone."""
    spec = _only(path, "HorizontalPodAutoscaler")["spec"]
    (metric,) = spec["metrics"]
    share = metric["resource"]["target"]["averageUtilization"] / 100
    return Utilization(share, _behaviour(spec["minReplicas"], spec["maxReplicas"], spec["behavior"]))


def _behaviour(least: int, most: int, given: Mapping[str, Any]) -> Behaviour:
    return Behaviour(least, most, Rules.of(given["scaleUp"]), Rules.of(given["scaleDown"]))


def _only(path: Path, kind: str) -> dict[str, Any]:
    (found,) = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each["kind"] == kind]
    return dict(found)
