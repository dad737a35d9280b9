"""Numbers that do not fit each other: memory, and times to start and to be given up."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy.checks.shapes import amount
from tests.deploy.manifests import Manifest, component_of, containers, label, pod_of, workloads

STARTS_S = {"gateway": 30, "worker": 600, "redis": 600}
"""So long each may take at least: to load a model, or the file of Redis."""

HANGS_S, PATIENCE_S, AWAY_S = (30, 120), 3, 30
"""So long a process may not come round before it is killed, at least and at most; so long it may take for one answer,
at least; and so long it may be asked by others when it is not ready."""


def unfit(manifests: list[Manifest]) -> list[str]:
    """Returns what contradicts each other, or is too short."""
    return [
        f"{label(each)}: {fault}"
        for each in workloads(manifests)
        for container in containers(pod_of(each))
        for fault in [*_memory(each, container), *_times(each, container)]
    ]


def _memory(workload: Manifest, container: Manifest) -> Iterator[str]:
    asked, most = (amount(container["resources"][end]["memory"]) for end in ("requests", "limits"))
    if asked > most:
        yield "asks for more memory than its limit"
    if workload["kind"] == "StatefulSet" and asked < most:
        yield "Redis is to have all the memory that it may use"
    volumes = [each.get("emptyDir", {}) for each in pod_of(workload)["volumes"]]
    shared = sum(amount(each["sizeLimit"]) for each in volumes if each.get("medium") == "Memory")
    if shared * 2 > most:
        yield "what is in /dev/shm counts as its memory, and may be more than half of it"


def _times(workload: Manifest, container: Manifest) -> Iterator[str]:
    spec, least_s = workload["spec"], STARTS_S[component_of(workload)]
    starts_s, hangs_s = (_takes_s(container[name]) for name in ("startupProbe", "livenessProbe"))
    if starts_s < least_s:
        yield f"it may take {starts_s} s to start, which is less than {least_s} s"
    deadline_s = spec.get("progressDeadlineSeconds", 600)
    if workload["kind"] == "Deployment" and deadline_s <= starts_s + spec.get("minReadySeconds", 0):
        yield f"it may take {starts_s} s to start, and its rollout is given up before"
    if not HANGS_S[0] <= hangs_s <= HANGS_S[1] or container["livenessProbe"].get("timeoutSeconds", 1) < PATIENCE_S:
        yield f"it is killed after {hangs_s} s, whatever it does"
    ready = container["readinessProbe"]
    if ready["failureThreshold"] < 2 or _takes_s(ready) > AWAY_S:
        yield "it is asked for long when it is not ready, or not for one answer that is late"


def _takes_s(probe: Manifest) -> int:
    return int(probe["periodSeconds"]) * int(probe["failureThreshold"])
