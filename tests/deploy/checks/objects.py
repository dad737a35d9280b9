"""What the objects are that are no workloads, each in its shape; a kind that is not here is not expected at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from api.asked import MAX_TIMEOUT_MS
from api.settings import GatewaySettings
from tests.deploy.checks import custom, pods
from tests.deploy.checks.shapes import ANY, BEHAVIOR, LABEL, NAME, Holds, Shape, between, misfits, twice
from tests.deploy.manifests import Manifest, component_of, label, of_kind

LABELS = Holds(
    "labels",
    lambda it: all(re.fullmatch(r"[\w.-]+(/[\w.-]+)?", key) and LABEL.fullmatch(str(it[key])) for key in it),
)
OURS = {"app.kubernetes.io/name": "redbatch"}
MB = 10**6
NEEDED = ("Deployment gateway", "HorizontalPodAutoscaler gateway", "Service gateway", "StatefulSet redis")
"""What others do not name, so that nobody would miss it. Workers may be of any name."""


def unexpected(manifests: list[Manifest]) -> list[str]:
    """Returns what is not as it is expected to be, or there twice."""
    tls = bool(of_kind(manifests, "Certificate"))
    found = [line for each in manifests for line in _misfits(each, tls=tls)]
    many = Counter((each["apiVersion"], label(each), each["metadata"].get("namespace")) for each in manifests)
    found += [f"{name}: it is there twice" for (_, name, _), count in many.items() if count > 1]
    there = {label(each) for each in manifests}
    return found + [f"there is no {name}" for name in NEEDED if manifests and name not in there]


def _misfits(manifest: Manifest, *, tls: bool) -> list[str]:
    where, kind = label(manifest), manifest["kind"]
    if kind in ("Deployment", "StatefulSet"):
        spec = pods.shape(manifest, tls=tls)
        shape = None if spec is None else {"spec": spec}
    elif kind in SHAPES:
        its = SHAPES[kind]
        shape = its(manifest) if callable(its) else its
    else:
        shape = custom.shape(manifest, tls=tls)
    if shape is None:
        return [f"{where}: nobody expects it"]
    metadata = {"name": NAME, "namespace?": NAME, "labels?": LABELS}
    whole = {"apiVersion": ANY, "kind": ANY, "metadata": metadata, **shape}
    return [*misfits(manifest, whole, where), *twice(manifest, where)]


def _service(manifest: Manifest) -> Shape | None:
    """Clients go to those that are ready; the pod of Redis has a name from the beginning, which its peers may need."""
    name, port = manifest["metadata"]["name"], {"name": "redis", "port": 6379, "targetPort": "redis"}
    if name == "gateway":
        port = {"name": "http", "port": 80, "targetPort": "http", "appProtocol": "http"}
    component = {"gateway": "gateway", "redis": "redis", "redis-pods": "redis"}.get(name)
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True} if name == "redis-pods" else {}
    spec = {"selector": {**OURS, "app.kubernetes.io/component": component}, "ports": (port,), **headless}
    return None if component is None else {"spec": spec}


def _config(manifest: Manifest) -> Shape | None:
    """Generated ones have a hash behind their names; settings have checks of their own."""
    data: dict[str, Shape] = {"gateway": ANY, "worker": ANY, "redis": {"redis.conf": ANY}}
    data["redbatch"] = {"redbatch.json": ANY}
    name = manifest["metadata"]["name"].split("-")[0]
    return {"data": data[name]} if name in data else None


def _autoscaler(manifest: Manifest) -> Shape:
    """Of gateways, by what one process uses of its core; workers are KEDA's."""
    return {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gateway"},
            "minReplicas": between(1, 10),
            "maxReplicas": between(manifest["spec"].get("minReplicas", 1), 100),
            "metrics": (
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": between(30, 80)},
                    },
                },
            ),
            "behavior": BEHAVIOR,
        }
    }


def _ingress(manifest: Manifest) -> Shape:
    """The largest body is that of a job, and the longest wait that which a client may name."""
    body = Holds("enough for a job", lambda it: _number(it, "m") * MB >= GatewaySettings().max_job_body_bytes)
    wait = Holds("the time that a client may name", lambda it: _number(it, "") * 1000 >= MAX_TIMEOUT_MS)
    nginx = "nginx.ingress.kubernetes.io/proxy-"
    backend = {"service": {"name": "gateway", "port": {"name": "http"}}}
    hosts = tuple(each.get("host") for each in manifest["spec"].get("rules", []))
    return {
        "metadata": {
            "name": NAME,
            "namespace?": NAME,
            "labels": LABELS,
            "annotations": {f"{nginx}body-size": body, f"{nginx}read-timeout": wait},
        },
        "spec": {
            "rules": ({"host": ANY, "http": {"paths": ({"path": "/", "pathType": "Prefix", "backend": backend},)}},),
            "tls": ({"hosts": hosts, "secretName": "gateway-tls"},),
        },
    }


def _number(text: object, unit: str) -> int:
    found = re.fullmatch(rf"(\d+){unit}", str(text))
    return int(found[1]) if found else 0


def _selected(manifest: Manifest) -> Shape:
    return {"matchLabels": {**manifest["metadata"].get("labels", {})}}


PORTS = [{"port": between(1, 65535), "protocol?": {"TCP", "UDP"}}]
PEERS = [{"podSelector?": ANY, "namespaceSelector?": ANY}]  # no `ipBlock`: who has which address is a cluster's matter
STANDARD = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
SHAPES: dict[str, Shape | Callable[[Manifest], Shape | None]] = {
    "Namespace": {"metadata": {"name": NAME, "labels": {**OURS, **STANDARD}}},
    "ServiceAccount": {"automountServiceAccountToken": False},
    "ConfigMap": _config,
    "Service": _service,
    "HorizontalPodAutoscaler": _autoscaler,
    "PodDisruptionBudget": lambda it: {
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": _selected(it) if component_of(it) in ("gateway", "worker") else None,
        }
    },
    "NetworkPolicy": {
        "spec": {
            "podSelector": ANY,
            "policyTypes": [{"Ingress", "Egress"}],
            "ingress?": [{"from?": PEERS, "ports": PORTS}],
            "egress?": [{"to?": PEERS, "ports": PORTS}],
        }
    },
    "Ingress": _ingress,
}
"""What each kind has beside `metadata`, and instead of it where it says more. Policies are evaluated (`network`)."""
