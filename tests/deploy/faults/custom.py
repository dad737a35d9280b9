"""What the definitions of custom resources leave open: KEDA's triggers, and certificates for those who use them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shared.keys import LANES
from tests.deploy.manifests import Manifest, label, named, of_kind

STREAMS = {"address", "stream", "streamLength"}
"""Of KEDA's redis-streams (https://keda.sh/docs/latest/scalers/redis-streams/): what it needs without a consumer group.
With one it would count what is claimed, or the lag, which nobody knows after a cancel."""

PARAMETERS = {"username", "password", "tls", "ca", "cert", "key", "keyPassword"}
TLS_PARAMETERS = {"tls", "ca", "cert", "key"}


def careless(manifests: list[Manifest]) -> list[str]:
    """Returns what these resources say that nothing comes of, or something else than meant."""
    return [
        f"{label(each)}: {fault}"
        for kind, look in (("ScaledObject", _scaled), ("TriggerAuthentication", _authentication), ("HTTPRoute", _route))
        for each in of_kind(manifests, kind)
        for fault in look(manifests, each)
    ]


def _scaled(manifests: list[Manifest], scaled: Manifest) -> Iterator[str]:
    (queue,) = [
        each["data"]["REDBATCH_QUEUE"] for each in of_kind(manifests, "ConfigMap") if "REDBATCH_QUEUE" in each["data"]
    ]
    triggers, host = scaled["spec"]["triggers"], f"redis.{scaled['metadata']['namespace']}.svc"
    for each in triggers:
        metadata = each["metadata"]
        if each["type"] != "redis-streams" or set(metadata) != STREAMS or each.get("metricType") != "AverageValue":
            yield f"trigger {each.get('name')} is not by the length of a stream"
        elif metadata["address"] != f"{host}:6379" or not re.fullmatch(r"[1-9]\d*", metadata["streamLength"]):
            yield f"trigger {each.get('name')}: {metadata}"
    lanes = {f"rb:{{{queue}}}:q:{lane}" for lane in LANES}
    if {each["metadata"].get("stream") for each in triggers} != lanes:
        yield f"its streams are not the lanes of {queue}"
    down = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    if down["stabilizationWindowSeconds"] < 300 or "fallback" not in scaled["spec"]:
        yield "workers are taken away at once, or when Redis does not answer"
    for each in of_kind(manifests, "Certificate"):
        if each["metadata"]["name"] == "redis" and not {"redis", host, "localhost"} <= set(each["spec"]["dnsNames"]):
            yield f"Redis' certificate is not for {host}, redis and localhost"


def _authentication(manifests: list[Manifest], authentication: Manifest) -> Iterator[str]:
    given = {each["parameter"] for each in authentication["spec"]["secretTargetRef"]}
    if not {"username", "password"} <= given <= PARAMETERS:
        yield f"KEDA knows other parameters than {sorted(given)}"
    if of_kind(manifests, "Certificate") and not given >= TLS_PARAMETERS:
        yield "it does not speak TLS, and Redis does: name the component tls after keda"


def _route(manifests: list[Manifest], route: Manifest) -> Iterator[str]:
    if not route["spec"].get("parentRefs"):
        yield "it belongs to no Gateway"
    named(manifests, "Service", route["spec"]["rules"][0]["backendRefs"][0]["name"])
