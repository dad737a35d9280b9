"""What custom resources are: KEDA's scaler and its way to Redis, certificates, a route, and what is measured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api.asked import MAX_TIMEOUT_MS
from shared.keys import LANES
from tests.deploy.checks.shapes import ANY, BEHAVIOR, By, Holds, Shape, between
from tests.deploy.manifests import Manifest, label, of_kind

STREAM = re.compile(rf"rb:\{{([\w.-]+)\}}:q:({'|'.join(LANES)})")
HOURS = re.compile(r"[1-9]\d*h")
"""What cert-manager reads, of a year too: it knows no days."""


def shape(manifest: Manifest, *, tls: bool) -> Shape | None:
    """Returns what a resource has beside `metadata`; None if nobody expects it."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    found: dict[str, Shape] = {
        "ScaledObject": _scaled(manifest),
        "TriggerAuthentication": {"secretTargetRef": By("parameter", _parameters(tls=tls))},
        "Issuer": ISSUERS.get(name),
        "Certificate": CERTIFICATES.get(name),
        "HTTPRoute": ROUTE,
        "PodMonitor": MONITOR,
        "PrometheusRule": {"groups": ANY},  # tests/deploy/test_monitoring.py has promtool read them
    }
    return None if found.get(kind) is None else {"spec": found[kind]}


def _scaled(manifest: Manifest) -> Shape:
    """By the length of streams: without `consumerGroup`, since the lag of a group is unknown after a cancel.

    What KEDA's redis-streams needs: https://keda.sh/docs/latest/scalers/redis-streams/.
    """
    trigger = {
        "type": "redis-streams",
        "name": set(LANES),
        "metricType": "AverageValue",
        "metadata": {
            "address": f"redis.{manifest['metadata'].get('namespace')}.svc:6379",
            "stream": STREAM,
            "streamLength": re.compile(r"[1-9]\d*"),
        },
        "authenticationRef": {"name": re.compile(r"redis(-[a-z0-9-]+)?")},
    }
    return {
        "scaleTargetRef": {"name": manifest["metadata"]["name"], "kind?": "Deployment"},
        "minReplicaCount": between(0, 100),
        "maxReplicaCount": between(manifest["spec"].get("minReplicaCount", 0), 1000),
        "pollingInterval": between(5, 60),
        "cooldownPeriod": between(300, 86400),
        "fallback": {
            "failureThreshold": between(2, 10),
            "replicas": between(1, 10),
            "behavior": "currentReplicasIfHigher",
        },
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": BEHAVIOR}},
        "triggers": (trigger,) * len(LANES),
    }


def _parameters(*, tls: bool) -> Shape:
    own = {each: {"name": "keda-redis", "key": each} for each in ("username", "password")}
    if not tls:
        return own
    files = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
    own["tls"] = {"name": "keda-redis", "key": "tls"}
    return own | {each: {"name": "keda-redis-tls", "key": file} for each, file in files.items()}


ISSUERS = {"redis-ca-root": {"selfSigned": {}}, "redis-ca": {"ca": {"secretName": "redis-ca"}}}


def _certificate(secret: str, issuer: str, **own: Shape) -> Shape:
    return {
        "secretName": secret,
        "duration": HOURS,
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy?": "Always"},
        "issuerRef": {"name": issuer, "kind": "Issuer", "group": "cert-manager.io"},
        **own,
    }


def _client(name: str) -> Shape:
    usages = ("digital signature", "client auth")
    return _certificate(f"{name}-redis-tls", "redis-ca", commonName=name, renewBefore=HOURS, usages=usages)


CERTIFICATES = {
    **{f"{name}-redis": _client(name) for name in ("gateway", "worker", "keda")},
    "redis-ca": _certificate("redis-ca", "redis-ca-root", isCA=True, commonName=ANY),
    "redis": _certificate(
        "redis-tls",
        "redis-ca",
        renewBefore=HOURS,
        usages=("digital signature", "server auth", "client auth"),  # its probes are clients
        dnsNames=Holds(
            "redis, redis.redbatch.svc and localhost",
            lambda it: set(it) >= {"redis", "redis.redbatch.svc", "localhost"},
        ),
    ),
}
ROUTE = {
    "parentRefs": ({"name": ANY, "namespace?": ANY},),
    "hostnames": ANY,
    "rules": (
        {
            "matches": ({"path": {"type": "PathPrefix", "value": "/"}},),
            "timeouts": {
                "request": Holds(
                    "the time that a client may name",
                    lambda it: re.fullmatch(r"\d+s", it) is not None and int(it[:-1]) * 1000 >= MAX_TIMEOUT_MS,
                )
            },
            "backendRefs": ({"name": "gateway", "port": 80},),
        },
    ),
}
MONITOR = {
    "selector": ANY,
    "podMetricsEndpoints": (
        {"port": "admin", "path": "/metrics", "interval": re.compile(r"\d+s"), "relabelings": ANY},
    ),
}


def careless(manifests: list[Manifest]) -> list[str]:
    """Returns what these resources say that nothing comes of, or something else than meant."""
    found = [f"{label(each)}: {fault}" for each in of_kind(manifests, "Certificate") for fault in _times(each)]
    default = [each["data"].get("REDBATCH_QUEUE") for each in of_kind(manifests, "ConfigMap")]
    seen = set()
    for each in of_kind(manifests, "ScaledObject"):
        queue, main = _queue(each), each["metadata"]["name"] == "worker"
        if queue is None or queue in seen or main != (queue in default):
            found.append(f"{label(each)}: its streams are those of {queue}, which is not its queue")
        seen.add(queue)
    return found


def _queue(scaled: Manifest) -> str | None:
    """Returns the queue all of whose lanes a ScaledObject reads; None if it reads others."""
    found = [STREAM.fullmatch(each["metadata"]["stream"]) for each in scaled["spec"]["triggers"]]
    queues = {each[1] for each in found if each}
    lanes = {each[2] for each in found if each}
    return queues.pop() if len(queues) == 1 and lanes == set(LANES) else None


def _times(certificate: Manifest) -> Iterator[str]:
    hours = [int(certificate["spec"].get(key, "0h")[:-1]) for key in ("renewBefore", "duration")]
    if hours[0] * 2 > hours[1]:
        yield "it is renewed in the first half of its time, or at once"
