"""Names that name nothing: ports, volumes, ConfigMaps, Secrets, accounts, and selectors that select nobody."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy.faults.secrets import secrets_of
from tests.deploy.manifests import Manifest, containers, label, of_kind, pod_labels, pod_of, selects, workloads


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
    """Returns the selectors that select no pod of these manifests, or other pods than their own."""
    pods = {label(each): pod_labels(each) for each in workloads(manifests)}
    found = []
    for each in manifests:
        for selector in _selectors(each):
            taken = [name for name, labels in pods.items() if selects(selector, labels)]
            if not taken:
                found.append(f"{label(each)}: selects no pod: {selector}")
            elif label(each) in pods and taken != [label(each)]:
                found.append(f"{label(each)}: selects pods of others: {taken}")
    return found


def _selectors(manifest: Manifest) -> Iterator[Manifest]:
    kind, spec = manifest["kind"], manifest.get("spec", {})
    if kind == "Service":
        yield {"matchLabels": spec["selector"]}
    if kind in ("Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor"):
        yield spec["selector"]
    if kind in ("Deployment", "StatefulSet"):
        yield from (each["labelSelector"] for each in pod_of(manifest).get("topologySpreadConstraints", []))
    if kind == "NetworkPolicy":
        yield spec["podSelector"]
        for way in ("ingress", "egress"):
            for rule in spec.get(way, []):
                for peer in rule.get("from" if way == "ingress" else "to", []):
                    if "podSelector" in peer and "namespaceSelector" not in peer:
                        yield peer["podSelector"]


def ports(manifests: list[Manifest]) -> list[str]:
    """Returns the ports that a probe, a Service, a monitor or a route names, and no container has."""
    found = []
    for each in workloads(manifests):
        for container in containers(pod_of(each)):
            there = _ports([container])
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container.get(name, {})
                port = (probe.get("httpGet") or probe.get("tcpSocket") or {}).get("port")
                if port is not None and port not in there:
                    found.append(f"{label(each)}: {name} asks port {port}, which there is not")
    for each in of_kind(manifests, "Service", "PodMonitor"):
        (selector,) = _selectors(each)
        pods = [pod_of(work) for work in workloads(manifests) if selects(selector, pod_labels(work))]
        there = _ports([container for pod in pods for container in containers(pod)])
        wanted = [port["targetPort"] for port in each["spec"].get("ports", [])]
        wanted += [end["port"] for end in each["spec"].get("podMetricsEndpoints", [])]
        found += [f"{label(each)}: port {port}, which its pods have not" for port in wanted if port not in there]
    for each in of_kind(manifests, "StatefulSet"):
        service = [
            one for one in of_kind(manifests, "Service") if one["metadata"]["name"] == each["spec"]["serviceName"]
        ]
        if [one["spec"].get("clusterIP") for one in service] != ["None"]:
            found.append(
                f"{label(each)}: {each['spec']['serviceName']} has an address of its own, where pods need names"
            )
    return found + list(_routes(manifests))


def _routes(manifests: list[Manifest]) -> Iterator[str]:
    for each in of_kind(manifests, "Ingress", "HTTPRoute"):
        for rule in each["spec"]["rules"]:
            ends = [path["backend"]["service"] for path in rule.get("http", {}).get("paths", [])]
            ends += rule.get("backendRefs", [])
            for end in ends:
                (service,) = [s for s in of_kind(manifests, "Service") if s["metadata"]["name"] == end["name"]] or [{}]
                there = {port[name] for port in service.get("spec", {}).get("ports", []) for name in ("name", "port")}
                port = (
                    end["port"] if isinstance(end["port"], int) else end["port"].get("name", end["port"].get("number"))
                )
                if port not in there:
                    yield f"{label(each)}: port {port} of {end['name']}, which there is not"


def _ports(found: list[Manifest]) -> set[str | int]:
    return {port[key] for each in found for port in each.get("ports", []) for key in ("name", "containerPort")}
