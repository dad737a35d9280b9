"""The restrictions that docs/deploy.md promises: Pod Security `restricted`, read-only roots, no token, fixed users."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy.manifests import Manifest, component_of, containers, label, of_kind, pod_of, workloads

STANDARDS = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
REDIS_USER = 999
USERS = {"gateway": 65532, "worker": 65532, "redis": REDIS_USER}
"""The users of the images."""

CONTAINER_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Together with the pod's context stricter than the Pod Security Standard `restricted`."""

VOLUME_KINDS = {"configMap", "emptyDir", "secret"}
HOST_FIELDS = {"hostIPC", "hostNetwork", "hostPID"}


def pod_context(user: int) -> Manifest:
    """Returns the securityContext of a user's pod; its group owns the files of secrets, whose mode is 0440."""
    seccomp = {"type": "RuntimeDefault"}
    return {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user, "seccompProfile": seccomp}


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields pods, accounts and namespaces with more rights than promised."""
    for each in of_kind(manifests, "Namespace"):
        labels = each["metadata"].get("labels", {})
        if {name: value for name, value in labels.items() if name.startswith("pod-security.")} != STANDARDS:
            yield f"{label(each)}: its pod-security labels are not {STANDARDS}"
    for each in of_kind(manifests, "ServiceAccount"):
        if each.get("automountServiceAccountToken") is not False:
            yield f"{label(each)}: automountServiceAccountToken is not false"
    for each in workloads(manifests):
        yield from (f"{label(each)}: {fault}" for fault in _pod_faults(pod_of(each), USERS.get(component_of(each), 0)))


def _pod_faults(pod: Manifest, user: int) -> Iterator[str]:
    # Kubernetes would set variables such as REDBATCH_PORT for a Service called redbatch.
    expected = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_context(user),
    }
    yield from (f"{key} is {pod.get(key)}, not {it}" for key, it in expected.items() if pod.get(key) != it)
    yield from (f"{field} is set" for field in sorted(HOST_FIELDS & pod.keys()))
    kinds = {each["name"]: {*each} - {"name"} for each in pod.get("volumes", [])}
    yield from (f"its volume {name} is of the kind {kind}" for name, kind in kinds.items() if not kind <= VOLUME_KINDS)
    for container in containers(pod):
        if container.get("securityContext") != CONTAINER_CONTEXT:
            yield f"securityContext of {container['name']} is not {CONTAINER_CONTEXT}"
        yield from (
            f"hostPort of {port.get('name')} is set" for port in container.get("ports", []) if "hostPort" in port
        )
        for mount in container.get("volumeMounts", []):
            if {"secret", "configMap"} & kinds.get(mount["name"], set()) and not mount.get("readOnly"):
                yield f"its mount {mount['mountPath']} is not readOnly"
