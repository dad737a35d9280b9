"""Resources: memory within its limit, times of probes and rollouts that agree, and the device of a worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise

from tests.deploy.manifests import SENTINEL, Manifest, component_of, containers, label, pod_of, workloads

UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
REDIS_SHARE = 0.7
"""Share of its limit that Redis may use: a rewrite of its file copies what changes meanwhile."""

MIN_REDIS_GRACE_S = 30
MIN_START_S = {"gateway": 30, "worker": 600, "redis": 600}
"""Minimum time to start: a model has to be loaded, or the file of Redis."""

HANG_S, MIN_TIMEOUT_S, MAX_UNREADY_S = (30, 120), 3, 30
"""Minimum and maximum time without progress before a process is killed; minimum timeout of a liveness probe; maximum
time for which a pod that is not ready may still receive requests."""


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields numbers that contradict each other, or are out of bounds."""
    for each in workloads(manifests):
        for container in containers(pod_of(each)):
            for fault in [*_memory_faults(each, container), *_time_faults(each, container), *_image_faults(each)]:
                yield f"{label(each)}: {fault}"


def gpu_of(workload: Manifest) -> str:
    """Returns the resource that gives its pods a GPU; "" for none."""
    limits = [each.get("resources", {}).get("limits", {}) for each in containers(pod_of(workload))]
    return next((name for each in limits for name in each if name.startswith("nvidia.com/")), "")


def parse_bytes(quantity: str | int) -> float:
    """Returns a quantity of memory in bytes; NaN, which no comparison accepts, if it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]|[KMGT]i)?", str(quantity))
    return float(match[1]) * UNITS[match[2] or ""] if match else float("nan")


def _memory_faults(workload: Manifest, container: Manifest) -> Iterator[str]:
    resources = container.get("resources", {})
    request, limit = (parse_bytes(resources.get(end, {}).get("memory", "")) for end in ("requests", "limits"))
    if not request <= limit:
        yield "its memory request or limit is missing, or the request exceeds the limit"
    volumes = [each.get("emptyDir", {}) for each in pod_of(workload).get("volumes", [])]
    shared = sum(parse_bytes(each.get("sizeLimit", "")) for each in volumes if each.get("medium") == "Memory")
    if not shared * 2 <= limit:
        yield "its /dev/shm counts as memory, and may fill more than half of the limit"
    if workload["kind"] == "StatefulSet" and container["name"] != SENTINEL:
        words = [*container.get("command", []), *container.get("args", [])]
        max_mb = [int(after.removesuffix("mb")) for word, after in pairwise(words) if word == "--maxmemory"]
        if not (len(max_mb) == 1 and max_mb[0] * 2**20 <= limit * REDIS_SHARE):
            yield f"its maxmemory of {max_mb} MiB is too much for its limit"
        if request != limit:
            yield "the memory request of Redis must be its limit"
        if pod_of(workload).get("terminationGracePeriodSeconds", 30) < MIN_REDIS_GRACE_S:
            yield f"terminationGracePeriodSeconds: Redis needs {MIN_REDIS_GRACE_S} s to write its file"


def _time_faults(workload: Manifest, container: Manifest) -> Iterator[str]:
    startup, liveness, readiness = (container.get(f"{name}Probe") for name in ("startup", "liveness", "readiness"))
    if not (startup and liveness and readiness):
        yield "it lacks a startupProbe, livenessProbe or readinessProbe"
        return
    spec, min_s, start_s = workload["spec"], MIN_START_S.get(component_of(workload), 0), _duration_s(startup)
    if start_s < min_s or startup.get("initialDelaySeconds", 0):
        yield f"its startupProbe gives it {start_s} s to start, and it needs {min_s} s, from the first second on"
    if workload["kind"] == "Deployment" and spec.get("progressDeadlineSeconds", 600) <= start_s + spec.get(
        "minReadySeconds", 0
    ):
        yield f"progressDeadlineSeconds: the rollout fails before the {start_s} s to start are over"
    if not HANG_S[0] <= _duration_s(liveness) <= HANG_S[1] or liveness.get("timeoutSeconds", 1) < MIN_TIMEOUT_S:
        yield f"its livenessProbe kills it after {_duration_s(liveness)} s, or for one answer that is late"
    if readiness["failureThreshold"] < 2 or _duration_s(readiness) > MAX_UNREADY_S:
        yield "its readinessProbe acts on one late answer, or too late"


def _duration_s(probe: Manifest) -> int:
    return int(probe.get("periodSeconds", 10)) * int(probe.get("failureThreshold", 3))


def _image_faults(workload: Manifest) -> Iterator[str]:
    component = component_of(workload)
    if workload["kind"] != "Deployment":
        return
    images = [each["image"] for each in containers(pod_of(workload))]
    if not all(re.fullmatch(rf"([\w.-]+/)*redbatch-{component}:{version('redbatch')}(-\w+)?", each) for each in images):
        yield f"its images are not of {component} in this version: {images}"
    if component == "worker":
        yield from _device_faults(workload)


def _device_faults(workload: Manifest) -> Iterator[str]:
    """Resource, image, settings and toleration name one device. Without the setting a worker falls back to the CPU."""
    gpu, pod = gpu_of(workload), pod_of(workload)
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    expected = {"REDBATCH_WORKER_ID": "metadata.name"} | ({"REDBATCH_DEVICE": "cuda"} if gpu else {})
    if gpu == "nvidia.com/gpu.shared":
        expected |= {"REDBATCH_GPU_LEASE": "batch", "REDBATCH_GPU_LEASE_POOL": "spec.nodeName"}
    of_redis = {name for name in env if "_REDIS_" in name} | {"REDBATCH_QUEUE_SHARDS"}
    if {name: value for name, value in env.items() if name not in of_redis} != expected:
        yield f"its variables are not {expected}: {env}"
    tolerated = [each.get("key") for each in pod.get("tolerations", [])] == ["nvidia.com/gpu"]
    if not (not container["image"].endswith("-cpu")) == tolerated == bool(gpu):
        yield f"its image {container['image']}, its tolerations and {gpu or 'no GPU'} do not suit each other"
