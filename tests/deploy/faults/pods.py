"""Pods with rights that they need not have, images without a version, no quantities, or a rollout that stops."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.deploy.dockerfile import ROOT
from tests.deploy.manifests import Manifest, containers, label, of_kind, pod_labels, pod_of, workloads

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""The kinds of volume that the Pod Security Standard `restricted` allows."""

MODES = ("enforce", "audit", "warn")
UNITS = {"": 1, "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def rights(manifests: list[Manifest]) -> list[str]:
    """Returns what the Pod Security Standard `restricted` would refuse, and what a pod of ours need not have either."""
    found = [f"{label(each)}: {fault}" for each in workloads(manifests) for fault in _rights(pod_of(each))]
    for each in of_kind(manifests, "Namespace"):
        labels = each["metadata"].get("labels", {})
        modes = [mode for mode in MODES if labels.get(f"pod-security.kubernetes.io/{mode}") != "restricted"]
        found += [f"{label(each)}: does not {mode} the standard `restricted`" for mode in modes]
    return found


def _rights(pod: Manifest) -> Iterator[str]:
    if any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "shares a namespace with its node"
    if pod.get("automountServiceAccountToken") is not False:
        yield "has a token for the cluster's API"
    if pod.get("enableServiceLinks") is not False:
        yield "has variables of the cluster's Services, which may be called as settings are"
    for volume in pod.get("volumes", []):
        if set(volume) - {"name"} - VOLUMES:
            yield f"has a volume of a kind that is not allowed: {volume['name']}"
    for container in containers(pod):
        context = pod.get("securityContext", {}) | container.get("securityContext", {})
        yield from (f"container {container['name']}: {fault}" for fault in _rights_of_container(container, context))


def _rights_of_container(container: Manifest, context: Manifest) -> Iterator[str]:
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "has all system calls (seccompProfile)"
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "may gain rights"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield "keeps capabilities"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "may write to its image"
    if "/tmp" not in [each["mountPath"] for each in container.get("volumeMounts", [])]:  # noqa: S108 - its own
        yield "has nowhere to write to"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "takes a port of its node"


def images(manifests: list[Manifest]) -> list[str]:
    """Returns the images without a version, and those of ours with another than this one."""
    ours = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert ours is not None
    found = []
    for each in workloads(manifests):
        for container in containers(pod_of(each)):
            name, _, version = container["image"].rpartition(":")
            if not re.match(r"\d+\.\d+", version):
                found.append(f"{label(each)}: the image {container['image']} has no version")
            elif name.startswith("redbatch-") and not re.fullmatch(re.escape(ours[1]) + r"(-\w+)?", version):
                found.append(f"{label(each)}: the image {container['image']} is not of version {ours[1]}")
    return found


def quantities(manifests: list[Manifest]) -> list[str]:
    """Returns resources that are not set or no quantities, and names that are none: schemas take any text for both."""
    found = [f"{label(each)}: no name" for each in manifests if not NAME.fullmatch(each["metadata"].get("name", ""))]
    for each in workloads(manifests):
        for container in containers(pod_of(each)):
            where = f"{label(each)}: container {container['name']}"
            found += [f"{where}: {fault}" for fault in _resources(container.get("resources", {}))]
    return found


def _resources(given: Manifest) -> Iterator[str]:
    asked, most = given.get("requests", {}), given.get("limits", {})
    values = [*asked.items(), *most.items()]
    wrong = [f"{name}: {value}" for name, value in values if not QUANTITY.fullmatch(str(value))]
    yield from wrong
    yield from (f"no {name} asked for" for name in ("cpu", "memory") if name not in asked)
    if "memory" not in most:
        yield "no limit on memory"
    elif not wrong and amount(asked.get("memory", 0)) > amount(most["memory"]):
        yield "asks for more memory than its limit"
    if "cpu" in most:
        yield "a limit on cpu, which stops it in the midst of a batch"
    for name, value in asked.items():
        if name.startswith("nvidia.com/") and most.get(name) != value:
            yield f"{name} is asked for, and limited to something else"


def amount(quantity: str | int) -> float:
    """Returns a quantity as a number: bytes, or cores."""
    number, unit = QUANTITY.fullmatch(str(quantity)).groups()  # type: ignore[union-attr]  # `quantities` looks at them
    return float(number) * UNITS[unit or ""]


def rollouts(manifests: list[Manifest]) -> list[str]:
    """Returns what would stop a rollout or a node's maintenance, or leave nobody to serve meanwhile."""
    found = [f"{label(each)}: {fault}" for each in workloads(manifests) for fault in _rollout(each)]
    budgets = [each for each in of_kind(manifests, "PodDisruptionBudget") if each["spec"].get("maxUnavailable") != 1]
    found += [f"{label(each)}: maxUnavailable is not 1" for each in budgets]
    for each in of_kind(manifests, "HorizontalPodAutoscaler", "ScaledObject"):
        spec = each["spec"]
        least, most = (spec.get(f"{end}Replicas", spec.get(f"{end}ReplicaCount")) for end in ("min", "max"))
        if not least <= most:
            found.append(f"{label(each)}: {least} to {most} replicas")
    return found


def _rollout(workload: Manifest) -> Iterator[str]:
    spec, component = workload["spec"], pod_labels(workload)["app.kubernetes.io/component"]
    if workload["kind"] == "Deployment":
        surge, unavailable = {"gateway": (1, 0), "worker": (0, 1)}[component]
        rolling = spec.get("strategy", {}).get("rollingUpdate", {})
        if (rolling.get("maxSurge"), rolling.get("maxUnavailable")) != (surge, unavailable):
            yield f"maxSurge and maxUnavailable are not {surge} and {unavailable}"
        if "replicas" in spec:
            yield "`replicas` would undo what has scaled it"
    for container in containers(pod_of(workload)):
        yield from (
            f"no {name}" for name in ("startupProbe", "livenessProbe", "readinessProbe") if name not in container
        )
        startup = container.get("startupProbe", {})
        starts_s = startup.get("periodSeconds", 10) * startup.get("failureThreshold", 3)
        if spec.get("progressDeadlineSeconds", 600) < starts_s:
            yield f"it may take {starts_s} s to start, and its rollout is given up before"
