"""References between objects: names of objects, volumes and namespaces, selectors, and names that occur twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.deploy.checks.secrets import secret_keys
from tests.deploy.manifests import (
    Manifest,
    component_of,
    containers,
    label,
    of_kind,
    pod_labels,
    pod_of,
    selects,
    uses_redis_cluster,
    workloads,
)

REQUIRED = ("Deployment gateway", "HorizontalPodAutoscaler gateway", "Service gateway")
"""Objects that no other object refers to. Deployments of workers may have any name."""

OF_OWN_REDIS = ("StatefulSet", "Service", "Certificate", "ScaledObject")
"""Kinds of which nothing but the gateway's Service is of use beside a Redis Cluster elsewhere."""

REFERENCES = {
    "authenticationRef": ("TriggerAuthentication", "name"),
    "backendRefs": ("Service", "name"),
    "ca": ("Secret", "secretName"),
    "configMap": ("ConfigMap", "name"),
    "configMapKeyRef": ("ConfigMap", "name"),
    "configMapRef": ("ConfigMap", "name"),
    "issuerRef": ("Issuer", "name"),
    "scaleTargetRef": ("Deployment", "name"),
    "secret": ("Secret", "secretName"),
    "secretTargetRef": ("Secret", "name"),
    "service": ("Service", "name"),
    "serviceAccountName": ("ServiceAccount", ""),
    "serviceName": ("Service", ""),
}
"""Keys whose value refers to an object: its kind, and the key of its name inside the value ("": the value itself)."""


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields references without a target, selectors with the wrong pods, and names that occur twice."""
    labels = {label(each) for each in manifests}
    is_elsewhere = uses_redis_cluster(manifests)
    required = REQUIRED if is_elsewhere else (*REQUIRED, "StatefulSet redis")
    yield from (f"there is no {name}" for name in required if name not in labels)
    for each in of_kind(manifests, *OF_OWN_REDIS) if is_elsewhere else ():
        if label(each) != "Service gateway":
            yield f"{label(each)}: it is of a Redis of these manifests, and there is none"
    counts = Counter((each["apiVersion"], label(each), each["metadata"].get("namespace")) for each in manifests)
    yield from (f"{name}: it occurs twice" for (_, name, _), count in counts.items() if count > 1)
    for each in manifests:
        yield from (f"{label(each)}: {fault}" for fault in _faults(manifests, each))


def _faults(manifests: list[Manifest], manifest: Manifest) -> Iterator[str]:
    namespaces = [each["metadata"]["name"] for each in of_kind(manifests, "Namespace")]
    if manifest["kind"] != "Namespace" and [manifest["metadata"].get("namespace")] != namespaces:
        yield f"its namespace is none of {namespaces}"
    yield from _duplicates(manifest)
    for kind, name in _references(manifest):
        names = {each["metadata"]["name"] for each in of_kind(manifests, kind)}
        external = {*secret_keys(manifests), "gateway-tls"} if kind == "Secret" else set()  # the latter: the Ingress'
        if name not in names | external:
            yield f"there is no {kind} {name}"
    yield from _selector_faults(manifests, manifest)
    if manifest["kind"] in ("Deployment", "StatefulSet"):
        yield from _volume_faults(manifest)
    if manifest["kind"] == "Deployment" and manifest["metadata"]["name"] not in {
        each["metadata"]["name"] for each in of_kind(manifests, "PodDisruptionBudget")
    }:
        yield "no PodDisruptionBudget has its name"


def _references(tree: object) -> Iterator[tuple[str, str]]:
    """Yields kind and name of every reference anywhere in an object."""
    if isinstance(tree, list):
        for each in tree:
            yield from _references(each)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            kind, name_key = REFERENCES.get(key, ("", ""))
            if kind:
                targets = value if isinstance(value, list) else [value]
                yield from ((kind, target[name_key] if name_key else target) for target in targets)
            yield from _references(value)


def _duplicates(tree: object) -> Iterator[str]:
    """Yields names that two elements of one list have: an API server refuses these, or uses the last."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _duplicates(value)
    elif isinstance(tree, list):
        named = [each for each in tree if isinstance(each, dict)]
        # Mounts are identified by their path and parameters by theirs, not by `name`.
        key = next((key for key in ("parameter", "mountPath", "name") if named and all(key in it for it in named)), "")
        counts = Counter(str(each[key]) for each in named if key)
        yield from (f"{key} {value} occurs twice" for value, count in counts.items() if count > 1)
        for each in tree:
            yield from _duplicates(each)


def _volume_faults(workload: Manifest) -> Iterator[str]:
    pod = pod_of(workload)
    volumes = {each["name"] for each in pod.get("volumes", [])}
    claims = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
    yield from (f"its volume {name} hides the claim {name}" for name in volumes & claims)
    volumes |= claims
    mounted = {mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", [])}
    yield from (f"it mounts {name}, which is no volume" for name in sorted(mounted - volumes))
    yield from (f"its volume {name} is not mounted" for name in sorted(volumes - mounted))


def _selector_faults(manifests: list[Manifest], manifest: Manifest) -> Iterator[str]:
    for selector, expected in _selectors(manifests, manifest):
        selected = [label(each) for each in workloads(manifests) if selects(selector, pod_labels(each))]
        if selected != expected:
            yield f"it selects the pods of {selected}, not of {expected}"


def _selectors(manifests: list[Manifest], manifest: Manifest) -> Iterator[tuple[Manifest, list[str]]]:
    """Yields the selectors of an object with the workloads whose pods each must select; policies are evaluated."""
    kind, name, spec = manifest["kind"], manifest["metadata"]["name"], manifest.get("spec", {})
    if kind in ("Service", "PodMonitor"):
        expected = [label(each) for each in workloads(manifests) if component_of(each) == name.split("-")[0]]
        yield {"matchLabels": spec["selector"]} if kind == "Service" else spec["selector"], expected
    if kind == "PodDisruptionBudget":
        yield spec["selector"], [f"StatefulSet {name}" if name == "redis" else f"Deployment {name}"]
    if kind in ("Deployment", "StatefulSet"):
        yield spec["selector"], [label(manifest)]
        for each in pod_of(manifest).get("topologySpreadConstraints", []):
            yield each["labelSelector"], [label(manifest)]
