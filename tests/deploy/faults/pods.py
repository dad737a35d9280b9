"""Pods with rights that they need not have, images without a version, no quantities, or a rollout that stops."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.deploy.dockerfile import ROOT
from tests.deploy.manifests import Manifest, containers, label, pod_labels, pod_of, workloads

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""The kinds of volume that the Pod Security Standard `restricted` allows."""

QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def rights(manifests: list[Manifest]) -> list[str]:
    """Returns what the Pod Security Standard `restricted` would refuse, and what a pod of ours need not have either."""
    return [f"{label(each)}: {fault}" for each in workloads(manifests) for fault in _rights(pod_of(each))]


def _rights(pod: Manifest) -> Iterator[str]:
    context = pod.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "has all system calls (seccompProfile)"
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
        yield from (f"container {container['name']}: {fault}" for fault in _rights_of_container(container))


def _rights_of_container(container: Manifest) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "may gain rights"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield "keeps capabilities"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "may write to its image"
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
            where, given = f"{label(each)}: container {container['name']}", container.get("resources", {})
            asked, most = given.get("requests", {}), given.get("limits", {})
            found += [f"{where}: no {name} asked for" for name in ("cpu", "memory") if name not in asked]
            found += [f"{where}: no limit on memory"] if "memory" not in most else []
            found += [f"{where}: a limit on cpu, which stops it in the midst of a batch"] if "cpu" in most else []
            values = [*asked.items(), *most.items()]
            found += [f"{where}: {name}: {value}" for name, value in values if not QUANTITY.fullmatch(str(value))]
            found += [
                f"{where}: {name} is asked for, and limited to something else"
                for name, value in asked.items()
                if name.startswith("nvidia.com/") and most.get(name) != value
            ]
    return found


def rollouts(manifests: list[Manifest]) -> list[str]:
    """Returns what would stop a rollout, or leave nobody to serve during one."""
    found = []
    for each in workloads(manifests):
        component, spec = pod_labels(each).get("app.kubernetes.io/component"), each["spec"]
        if each["kind"] == "Deployment":
            wanted = {"gateway": (1, 0), "worker": (0, 1)}[str(component)]
            rolling = spec.get("strategy", {}).get("rollingUpdate", {})
            if (rolling.get("maxSurge"), rolling.get("maxUnavailable")) != wanted:
                found.append(f"{label(each)}: maxSurge and maxUnavailable are not {wanted[0]} and {wanted[1]}")
            if "replicas" in spec:
                found.append(f"{label(each)}: `replicas` would undo what has scaled it")
        for container in containers(pod_of(each)):
            missing = [name for name in ("startupProbe", "livenessProbe", "readinessProbe") if name not in container]
            found += [f"{label(each)}: no {name}" for name in missing]
    return found
