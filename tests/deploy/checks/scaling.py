"""Rollouts, replicas and autoscalers; for KEDA also the streams of the queue, which its schema does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator

from redbatch.redis_users.passwords import pods_with_sentinels
from shared.keys import LANES
from tests.deploy.manifests import Manifest, component_of, has_sentinels, label, of_kind

STREAM = re.compile(rf"rb:\{{([\w.-]+)\}}:q:({'|'.join(LANES)})")
STRATEGIES = {"gateway": {"maxSurge": 1, "maxUnavailable": 0}, "worker": {"maxSurge": 0, "maxUnavailable": 1}}
"""Gateways are replaced without a gap; a new worker needs the GPU of the old one."""

MIN_SCALE_DOWN_S = 300
STREAM_KEYS = ("stream", "streamLength")
"""What KEDA's redis-streams needs beside an address: https://keda.sh/docs/latest/scalers/redis-streams/. Without
`consumerGroup` it reads the length of the stream: the lag of a group is unknown after a cancel."""


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields other rollout strategies, and autoscalers of another workload or stream, or that scale down too soon."""
    for each in of_kind(manifests, "Deployment"):
        if each["spec"].get("strategy", {}).get("rollingUpdate") != STRATEGIES.get(component_of(each)):
            yield f"{label(each)}: its strategy is not that of {STRATEGIES}"
        if "replicas" in each["spec"]:
            yield f"{label(each)}: replicas: applying it again would undo what an autoscaler has set"
    for each in of_kind(manifests, "StatefulSet"):
        if each["spec"].get("replicas", 1) != (3 if has_sentinels(manifests) else 1):
            yield f"{label(each)}: replicas: there is one Redis, or three with sentinels"
    for each in of_kind(manifests, "HorizontalPodAutoscaler"):
        spec = each["spec"]
        bounds = spec.get("minReplicas", 1), spec["maxReplicas"]
        yield from (f"{label(each)}: {fault}" for fault in _faults(bounds, spec, spec.get("behavior", {}), "gateway"))
    queues: set[str | None] = set()
    default = [each["data"].get("REDBATCH_QUEUE") for each in of_kind(manifests, "ConfigMap")]
    for each in of_kind(manifests, "ScaledObject"):
        queue, name = _queue(each), each["metadata"]["name"]
        if queue is None or queue in queues or (name == "worker") != (queue in default):
            yield f"{label(each)}: its streams are those of {queue}, which is not its queue"
        queues.add(queue)
        triggers = _triggers(each["metadata"]["namespace"], with_sentinels=has_sentinels(manifests))
        yield from (f"{label(each)}: {fault}" for fault in _keda_faults(each["spec"], each["metadata"], triggers))


def _faults(bounds: tuple[int, int], spec: Manifest, behavior: Manifest, name: str) -> Iterator[str]:
    target = spec["scaleTargetRef"]
    if (target.get("kind", "Deployment"), target["name"]) != ("Deployment", name):
        yield f"scaleTargetRef is not the Deployment {name}"
    if bounds[0] > bounds[1]:
        yield "minReplicas is more than the maximum"
    if behavior.get("scaleDown", {}).get("stabilizationWindowSeconds", 0) < MIN_SCALE_DOWN_S:
        yield f"stabilizationWindowSeconds: it scales down within {MIN_SCALE_DOWN_S} s"


def _triggers(namespace: str, *, with_sentinels: bool) -> Manifest:
    """Returns type and metadata of a trigger, without those of the stream."""
    if not with_sentinels:
        return {"type": "redis-streams", "address": f"redis.{namespace}.svc:6379"}
    address = pods_with_sentinels(namespace)
    return {
        "type": "redis-sentinel-streams",
        "addresses": f"{address.host}:{address.port}",
        "sentinelMaster": address.master,
    }


def _keda_faults(spec: Manifest, metadata: Manifest, expected: Manifest) -> Iterator[str]:
    behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
    bounds = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
    yield from _faults(bounds, spec, behavior, metadata["name"])
    if spec.get("fallback", {}).get("behavior") != "currentReplicasIfHigher":
        yield "fallback: workers would be removed while Redis does not answer"
    for trigger in spec["triggers"]:
        found = {"type": trigger["type"], **trigger["metadata"]}
        if found != expected | {key: found.get(key) for key in STREAM_KEYS} or not all(map(found.get, STREAM_KEYS)):
            yield f"a trigger has {found}, not {sorted(STREAM_KEYS)} at {expected}"
        if "authenticationRef" not in trigger:
            yield "a trigger has no authenticationRef"


def _queue(scaled: Manifest) -> str | None:
    """Returns the queue all of whose lanes a ScaledObject reads; None if it reads other streams."""
    streams = [STREAM.fullmatch(each["metadata"].get("stream", "")) for each in scaled["spec"]["triggers"]]
    queues = {each[1] for each in streams if each}
    lanes = {each[2] for each in streams if each}
    return queues.pop() if len(queues) == 1 and lanes == set(LANES) else None
