"""What k8s/ sets of the autoscalers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from bench.autoscaling.hpa import DEFAULT, Autoscaler, Behaviour, Policy, Rules
from bench.autoscaling.keda import Fallback, ScaledObject
from bench.machine import ROOT
from shared.keys import BULK, INTERACTIVE, LANES

K8S = ROOT / "k8s"
WORKERS = Path("components", "keda", "scaledobject.yaml")
CPU_WORKERS = Path("components", "keda-cpu", "target.yaml")
GATEWAYS = Path("base", "gateway-hpa.yaml")
TARGET = re.compile(r"/spec/triggers/(\d+)/metadata/streamLength")


@dataclass(frozen=True, slots=True)
class Utilization:
    """An HPA by CPU: the share of its request that each pod is to use, the bounds, and how fast it goes."""

    target: float
    least: int
    most: int
    behaviour: Behaviour = DEFAULT

    def autoscaler(self) -> Autoscaler:
        """Returns one that has not decided anything yet."""
        return Autoscaler(self.least, self.most, self.behaviour)


@dataclass(frozen=True, slots=True)
class Autoscalers:
    """Both: KEDA's for workers, and the HPA for gateways."""

    workers: ScaledObject
    gateways: Utilization


def from_manifests(k8s: Path = K8S) -> Autoscalers:
    """Returns what the files under k8s/ say. What they leave out is as KEDA and Kubernetes have it."""
    return Autoscalers(
        scaled_object(_only(k8s / WORKERS, "ScaledObject")),
        utilization(_only(k8s / GATEWAYS, "HorizontalPodAutoscaler")),
    )


def on_cpus(autoscalers: Autoscalers, k8s: Path = K8S) -> Autoscalers:
    """Returns them with the targets that the component for workers on CPUs puts in place of the others.

    Raises ValueError: it replaces something else, too.
    """
    manifest = _only(k8s / WORKERS, "ScaledObject")
    for each in yaml.safe_load((k8s / CPU_WORKERS).read_text(encoding="utf-8")):
        place = TARGET.fullmatch(each["path"])
        if each["op"] != "replace" or place is None:
            raise ValueError(f"{each['op']} {each['path']} is not the target of a trigger")
        manifest["spec"]["triggers"][int(place[1])]["metadata"]["streamLength"] = each["value"]
    return replace(autoscalers, workers=scaled_object(manifest))


def scaled_object(manifest: Mapping[str, Any]) -> ScaledObject:
    """Returns a ScaledObject by redis-streams: by the length of each lane. Raises ValueError: by something else.

    By length, too, KEDA calls the value above which there is anything to do activationLagCount.
    """
    spec, defaults = manifest["spec"], ScaledObject(1, 0, 100)
    given = [each["metadata"] for each in spec["triggers"]]
    targets = {each["stream"].rpartition(":")[2]: float(each["streamLength"]) for each in given}
    if targets.keys() != set(LANES) or any("consumerGroup" in each for each in given):
        raise ValueError(f"by {given}, not by the length of each lane")
    (activation,) = {float(each.get("activationLagCount", 0)) for each in given}
    config = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {})
    return ScaledObject(
        target=targets[LANES[INTERACTIVE]],
        least=spec.get("minReplicaCount", defaults.least),
        most=spec.get("maxReplicaCount", defaults.most),
        activation=activation,
        polling_s=spec.get("pollingInterval", defaults.polling_s),
        cooldown_s=spec.get("cooldownPeriod", defaults.cooldown_s),
        behaviour=behaviour(config.get("behavior", {})),
        fallback=_fallback(spec.get("fallback")),
        bulk_target=targets[LANES[BULK]],
    )


def utilization(manifest: Mapping[str, Any]) -> Utilization:
    """Returns a HorizontalPodAutoscaler that is by CPU alone."""
    spec = manifest["spec"]
    (metric,) = spec["metrics"]
    if metric["resource"]["name"] != "cpu":
        raise ValueError(f"by {metric['resource']['name']}, not by CPU")
    share = metric["resource"]["target"]["averageUtilization"] / 100
    given = behaviour(spec.get("behavior", {}))
    return Utilization(share, spec.get("minReplicas", 1), spec["maxReplicas"], given)


def behaviour(given: Mapping[str, Any]) -> Behaviour:
    """Returns spec.behavior; what it leaves out is as Kubernetes has it."""
    return Behaviour(_rules(given.get("scaleUp", {}), DEFAULT.up), _rules(given.get("scaleDown", {}), DEFAULT.down))


def _rules(given: Mapping[str, Any], default: Rules) -> Rules:
    policies = [Policy(each["type"], each["value"], each["periodSeconds"]) for each in given.get("policies", ())]
    return Rules(
        given.get("stabilizationWindowSeconds", default.stabilization_s),
        policies or default.policies,
        given.get("selectPolicy", default.select),
    )


def _fallback(given: Mapping[str, Any] | None) -> Fallback | None:
    if given is None:
        return None
    return Fallback(given["failureThreshold"], given["replicas"], given.get("behavior", "static"))


def _only(path: Path, kind: str) -> dict[str, Any]:
    (found,) = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each["kind"] == kind]
    return dict(found)
