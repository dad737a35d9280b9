"""Reads the autoscalers' settings from the manifests in k8s/."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from bench.autoscaling.hpa import DEFAULT, Behavior, HorizontalPodAutoscaler, ScalingPolicy, ScalingRules
from bench.autoscaling.keda import Fallback, ScaledObject
from bench.machine import ROOT
from shared.keys import BULK, INTERACTIVE, LANES

K8S = ROOT / "k8s"
WORKERS = Path("components", "keda", "scaledobject.yaml")
CPU_WORKERS = Path("components", "keda-cpu", "target.yaml")
GATEWAYS = Path("base", "gateway-hpa.yaml")
TARGET = re.compile(r"/spec/triggers/(\d+)/metadata/streamLength")


@dataclass(frozen=True, slots=True)
class CpuHpaSpec:
    """An HPA by CPU: the target usage as a share of each pod's request, the bounds, and the rate of change."""

    target: float
    min_replicas: int
    max_replicas: int
    behavior: Behavior = DEFAULT

    def autoscaler(self) -> HorizontalPodAutoscaler:
        """Returns a new autoscaler, without any history."""
        return HorizontalPodAutoscaler(self.min_replicas, self.max_replicas, self.behavior)


@dataclass(frozen=True, slots=True)
class Autoscalers:
    """Both autoscalers: KEDA's for workers, and the HPA for gateways."""

    workers: ScaledObject
    gateways: CpuHpaSpec


def from_manifests(k8s: Path = K8S) -> Autoscalers:
    """Returns the settings of the files under k8s/; those that are left out have KEDA's and Kubernetes' defaults."""
    return Autoscalers(
        scaled_object(_only(k8s / WORKERS, "ScaledObject")),
        cpu_hpa_spec(_only(k8s / GATEWAYS, "HorizontalPodAutoscaler")),
    )


def on_cpus(autoscalers: Autoscalers, k8s: Path = K8S) -> Autoscalers:
    """Returns the autoscalers with the targets of the component for workers on CPUs, which replace those for GPUs.

    Raises ValueError: the component replaces something else, too.
    """
    manifest = _only(k8s / WORKERS, "ScaledObject")
    for each in yaml.safe_load((k8s / CPU_WORKERS).read_text(encoding="utf-8")):
        place = TARGET.fullmatch(each["path"])
        if each["op"] != "replace" or place is None:
            raise ValueError(f"{each['op']} {each['path']} is not the target of a trigger")
        manifest["spec"]["triggers"][int(place[1])]["metadata"]["streamLength"] = each["value"]
    return replace(autoscalers, workers=scaled_object(manifest))


def scaled_object(manifest: Mapping[str, Any]) -> ScaledObject:
    """Returns a ScaledObject whose redis-streams triggers use the length of each lane.

    Raises ValueError: a trigger uses another metric. KEDA's name for the activation value is activationLagCount, even
    with a trigger on the length.
    """
    spec, defaults = manifest["spec"], ScaledObject(1, 0, 100)
    triggers = [each["metadata"] for each in spec["triggers"]]
    targets = {each["stream"].rpartition(":")[2]: float(each["streamLength"]) for each in triggers}
    if targets.keys() != set(LANES) or any("consumerGroup" in each for each in triggers):
        raise ValueError(f"the triggers {triggers} do not use the length of each lane")
    (activation,) = {float(each.get("activationLagCount", 0)) for each in triggers}
    config = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {})
    return ScaledObject(
        target=targets[LANES[INTERACTIVE]],
        min_replicas=spec.get("minReplicaCount", defaults.min_replicas),
        max_replicas=spec.get("maxReplicaCount", defaults.max_replicas),
        activation=activation,
        polling_interval_s=spec.get("pollingInterval", defaults.polling_interval_s),
        cooldown_period_s=spec.get("cooldownPeriod", defaults.cooldown_period_s),
        behavior=behavior(config.get("behavior", {})),
        fallback=_fallback(spec.get("fallback")),
        bulk_target=targets[LANES[BULK]],
    )


def cpu_hpa_spec(manifest: Mapping[str, Any]) -> CpuHpaSpec:
    """Returns a HorizontalPodAutoscaler with CPU as its only metric. Raises ValueError: it uses another resource."""
    spec = manifest["spec"]
    (metric,) = spec["metrics"]
    if metric["resource"]["name"] != "cpu":
        raise ValueError(f"the metric is {metric['resource']['name']}, not cpu")
    share = metric["resource"]["target"]["averageUtilization"] / 100
    rules = behavior(spec.get("behavior", {}))
    return CpuHpaSpec(share, spec.get("minReplicas", 1), spec["maxReplicas"], rules)


def behavior(spec: Mapping[str, Any]) -> Behavior:
    """Returns spec.behavior. Fields that it leaves out have Kubernetes' defaults."""
    return Behavior(_rules(spec.get("scaleUp", {}), DEFAULT.up), _rules(spec.get("scaleDown", {}), DEFAULT.down))


def _rules(spec: Mapping[str, Any], default: ScalingRules) -> ScalingRules:
    policies = [ScalingPolicy(each["type"], each["value"], each["periodSeconds"]) for each in spec.get("policies", ())]
    return ScalingRules(
        spec.get("stabilizationWindowSeconds", default.stabilization_window_s),
        policies or default.policies,
        spec.get("selectPolicy", default.select_policy),
    )


def _fallback(spec: Mapping[str, Any] | None) -> Fallback | None:
    if spec is None:
        return None
    return Fallback(spec["failureThreshold"], spec["replicas"], spec.get("behavior", "static"))


def _only(path: Path, kind: str) -> dict[str, Any]:
    (manifest,) = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each["kind"] == kind]
    return dict(manifest)
