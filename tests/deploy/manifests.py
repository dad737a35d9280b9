"""The manifests for Kubernetes as objects: the committed file, and those that kustomize renders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dockerfile import ROOT
from tests.servers import require_tool

Manifest = dict[str, Any]
SENTINEL = "sentinel"
"""The name of the container beside each Redis of the component redis-sentinel."""

K8S = ROOT / "k8s"
RENDERED = K8S / "redbatch.yaml"
OVERLAYS = sorted(path.parent.name for path in (K8S / "overlays").glob("*/kustomization.yaml"))
COMPONENTS = sorted(
    (str(path.parent.relative_to(K8S / "components")) for path in (K8S / "components").rglob("kustomization.yaml")),
    key=lambda name: (name == "tls", name),
)
"""In the order in which an overlay must list them: `tls` comes last, because it patches resources of `keda`."""


def render(folder: Path) -> str:
    """Returns the manifests that kustomize renders from a folder, without a cluster. Raises AssertionError: it fails.

    Skips the test if kubectl is not installed.
    """
    words = [require_tool("kubectl", "its kustomize renders the manifests"), "kustomize", str(folder)]
    ran = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def relative_path(path: str, folder: Path) -> str:
    """Returns the path from a folder to a file of k8s/, as a kustomization needs it."""
    return os.path.relpath(K8S / path, folder.resolve())


def compose(overlay: str, components: Iterable[str], folder: Path, beside: Iterable[str] = ()) -> str:
    """Renders an overlay with components from a kustomization like that of a user, in an empty folder.

    Args:
        overlay: an overlay of k8s/.
        components: components of k8s/, in their order.
        folder: the kustomization is written into it.
        beside: further folders that it lists as resources.
    """
    text = yaml.safe_dump(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "redbatch",
            "resources": [relative_path(f"overlays/{overlay}", folder), *beside],
            "components": [relative_path(f"components/{each}", folder) for each in components],
        }
    )
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    return render(folder)


def objects(text: str) -> list[Manifest]:
    """Returns the objects of a file of manifests."""
    found: list[Manifest] = [each for each in yaml.safe_load_all(text) if each is not None]
    return found


def label(manifest: Manifest) -> str:
    """Returns kind and name, with which a fault begins."""
    return f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"


def of_kind(manifests: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    """Returns the objects of some kinds."""
    return [each for each in manifests if each.get("kind") in kinds]


def named(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """Returns the object of a kind and name. Raises ValueError: there is none, or more than one."""
    (found,) = [each for each in of_kind(manifests, kind) if each["metadata"]["name"] == name]
    return found


def workloads(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Returns the objects that create pods."""
    return of_kind(manifests, "Deployment", "StatefulSet")


def pod_of(workload: Manifest) -> Manifest:
    """Returns the spec of its pods."""
    found: Manifest = workload["spec"]["template"]["spec"]
    return found


def pod_labels(workload: Manifest) -> dict[str, str]:
    """Returns the labels of its pods."""
    found: dict[str, str] = workload["spec"]["template"]["metadata"].get("labels", {})
    return found


def component_of(manifest: Manifest) -> str:
    """Returns the component that it belongs to: gateway, worker or redis; "" for none."""
    return str(manifest["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def containers(pod: Manifest) -> Iterator[Manifest]:
    """Yields its containers, including the initContainers."""
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def has_sentinels(manifests: Iterable[Manifest]) -> bool:
    """Whether there are three Redis with sentinels, not one."""
    pods = [pod_of(each) for each in of_kind(manifests, "StatefulSet")]
    return any(container["name"] == SENTINEL for pod in pods for container in containers(pod))


def uses_redis_cluster(manifests: Iterable[Manifest]) -> bool:
    """Whether there is no Redis, but a Redis Cluster elsewhere."""
    return any(each["metadata"]["name"] == "redis-cluster" for each in of_kind(manifests, "NetworkPolicy"))


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Returns whether a label selector matches these labels."""
    if any(labels.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", []):
        value, values = labels.get(each["key"]), each.get("values", [])
        met = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[each["operator"]]
        if not met:
            return False
    return True


def config_of(manifests: list[Manifest], container: Manifest) -> dict[str, str]:
    """Returns the variables of a container from ConfigMaps and from its manifest, except those of the downward API."""
    named = [each["configMapRef"]["name"] for each in container.get("envFrom", []) if "configMapRef" in each]
    values: dict[str, str] = {}
    for each in of_kind(manifests, "ConfigMap"):
        values |= each["data"] if each["metadata"]["name"] in named else {}
    return values | {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}
