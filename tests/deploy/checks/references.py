"""Names that name nothing: volumes, ConfigMaps, Secrets, accounts, and selectors that select nobody, or others."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy.checks.secrets import secrets_of
from tests.deploy.manifests import (
    Manifest,
    component_of,
    containers,
    label,
    of_kind,
    pod_labels,
    pod_of,
    selects,
    workloads,
)


def elsewhere(manifests: list[Manifest]) -> list[str]:
    """Returns what is not in the namespace that is made, where the others would not find it."""
    (name,) = [each["metadata"]["name"] for each in of_kind(manifests, "Namespace")] or [""]
    namespaced = [each for each in manifests if each["kind"] != "Namespace"]
    return [f"{label(each)}: not in {name}" for each in namespaced if each["metadata"].get("namespace") != name]


def dangling(manifests: list[Manifest]) -> list[str]:
    """Returns what pods name and nobody has."""
    kinds = {kind for kind, _ in _REFERENCES.values()}
    kept = {kind: {each["metadata"]["name"] for each in of_kind(manifests, kind)} for kind in kinds}
    kept["Secret"] |= set(secrets_of(manifests)) | {"gateway-tls"}  # the Ingress' own, which a cluster makes
    return [
        f"{label(each)}: there is no {kind} {name}"
        for each in manifests
        for kind, name in _named(each)
        if name not in kept[kind]
    ] + [f"{label(each)}: {fault}" for each in workloads(manifests) for fault in _volumes(each)]


_REFERENCES = {
    "authenticationRef": ("TriggerAuthentication", "name"),
    "backendRefs": ("Service", "name"),
    "ca": ("Secret", "secretName"),
    "configMap": ("ConfigMap", "name"),
    "configMapKeyRef": ("ConfigMap", "name"),
    "configMapRef": ("ConfigMap", "name"),
    "issuerRef": ("Issuer", "name"),
    "scaleTargetRef": ("Deployment", "name"),
    "secret": ("Secret", "secretName"),
    "secretKeyRef": ("Secret", "name"),
    "secretRef": ("Secret", "name"),
    "secretTargetRef": ("Secret", "name"),
    "service": ("Service", "name"),
    "serviceAccountName": ("ServiceAccount", ""),
    "serviceName": ("Service", ""),
}
"""Keys under which something is named, its kind, and where in what stands there its name is."""


def _named(tree: object) -> Iterator[tuple[str, str]]:
    """Yields kind and name of all that is named anywhere in an object."""
    if isinstance(tree, list):
        for each in tree:
            yield from _named(each)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            kind, place = _REFERENCES.get(key, ("", ""))
            ends = value if isinstance(value, list) else [value]
            if kind:
                yield from ((kind, end[place] if place else end) for end in ends)
            yield from _named(value)


def _volumes(workload: Manifest) -> Iterator[str]:
    pod = pod_of(workload)
    there = {each["name"] for each in pod.get("volumes", [])}
    there |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
    mounted = {mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", [])}
    yield from (f"mounts {name}, which is no volume" for name in sorted(mounted - there))
    yield from (f"mounts {name} nowhere" for name in sorted(there - mounted))


def selectors(manifests: list[Manifest]) -> list[str]:
    """Returns the selectors that select no pod of these manifests, or other pods than they are for."""
    found = []
    for each in manifests:
        for selector, of in _selectors(manifests, each):
            taken = [label(work) for work in workloads(manifests) if selects(selector, pod_labels(work))]
            if not taken:
                found.append(f"{label(each)}: selects no pod: {selector}")
            elif of is not None and taken != of:
                found.append(f"{label(each)}: selects the pods of {taken}, not of {of}")
    kept = {each["metadata"]["name"] for each in of_kind(manifests, "PodDisruptionBudget")}
    without = [each for each in of_kind(manifests, "Deployment") if each["metadata"]["name"] not in kept]
    return found + [f"{label(each)}: no PodDisruptionBudget is called so" for each in without]


def _selectors(manifests: list[Manifest], manifest: Manifest) -> Iterator[tuple[Manifest, list[str] | None]]:
    """Yields what an object selects by, and whose pods these are to be: what it is called after says it."""
    kind, name, spec = manifest["kind"], manifest["metadata"]["name"], manifest.get("spec", {})
    if kind in ("Service", "PodMonitor"):
        of = [label(each) for each in workloads(manifests) if component_of(each) == name.split("-")[0]]
        yield {"matchLabels": spec["selector"]} if kind == "Service" else spec["selector"], of
    if kind == "PodDisruptionBudget":
        yield spec["selector"], [f"Deployment {name}"]
    if kind in ("Deployment", "StatefulSet"):
        yield spec["selector"], [label(manifest)]
        for each in pod_of(manifest).get("topologySpreadConstraints", []):
            yield each["labelSelector"], [label(manifest)]
    if kind == "NetworkPolicy":
        yield spec["podSelector"], None
        for way, side in (("ingress", "from"), ("egress", "to")):
            peers = [peer for rule in spec.get(way, []) for peer in rule.get(side, [])]
            yield from ((peer["podSelector"], None) for peer in peers if "namespaceSelector" not in peer)
