"""Network policies, evaluated: they allow the connections that the processes need, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from tests.deploy.manifests import (
    Manifest,
    component_of,
    has_sentinels,
    of_kind,
    pod_labels,
    selects,
    uses_redis_cluster,
    workloads,
)

ADMIN = (GatewaySettings().admin_port, WorkerSettings().admin_port)
HTTP = GatewaySettings().port
DNS = (53, 5353)
REDIS, SENTINEL = 6379, 26379
PORTS = (*DNS, 80, 443, REDIS, SENTINEL, HTTP, *ADMIN)
PROTOCOLS = ("TCP", "UDP")
NAMESPACES = ("default", "kube-system", "keda", "monitoring", "ingress")
"""Other namespaces; each has one pod without labels."""


class Endpoint(NamedTuple):
    """A pod: of a workload, a `stranger` in the same namespace, or one in another namespace."""

    name: str
    component: str
    namespace: dict[str, str]
    labels: dict[str, str]


class Connection(NamedTuple):
    """A connection from one pod to a port of another."""

    source: Endpoint
    target: Endpoint
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.source.name} to {self.target.name} at {self.port} ({self.protocol})"


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields connections that are needed and closed, and those that are open and not needed, for each end by itself."""
    kinds, endpoints = {each["kind"] for each in manifests}, list(_endpoints(manifests))
    redis_ports = (REDIS, SENTINEL) if has_sentinels(manifests) else (REDIS,)
    is_elsewhere = uses_redis_cluster(manifests)
    own = [each for each in endpoints if each.name not in NAMESPACES]
    for pod, direction in product(own, ("Ingress", "Egress")):
        rules = _rules(manifests, pod, direction)
        for peer, port, protocol in product(endpoints, PORTS, PROTOCOLS):
            ends = (peer, pod) if direction == "Ingress" else (pod, peer)
            connection = Connection(*ends, port, protocol)
            needed = (
                _ingress_needed(connection, kinds, redis_ports)
                if direction == "Ingress"
                else (
                    connection.port in DNS
                    or (_is_to_elsewhere(connection) if is_elsewhere else _is_to_redis(connection, redis_ports))
                )
            )
            if needed != (rules is None or any(_allows(rule, peer, port, protocol, pod) for rule in rules)):
                yield f"{direction} {'closed, and' if needed else 'open, and not'} needed: {connection}"


def _ingress_needed(connection: Connection, kinds: set[str], redis_ports: Sequence[int]) -> bool:
    """Clients of gateways are anywhere: API keys protect these."""
    source, target, port = connection.source.name, connection.target.component, connection.port
    return connection.protocol == "TCP" and (
        _is_to_redis(connection, redis_ports)
        or (target == "gateway" and port == HTTP)
        or ("ScaledObject" in kinds and (source, target) == ("keda", "redis") and port in redis_ports)
        or ("PodMonitor" in kinds and source == "monitoring" and target in ("gateway", "worker") and port in ADMIN)
    )


def _is_to_redis(connection: Connection, ports: Sequence[int]) -> bool:
    """Of a gateway or worker or, where there are several, of another Redis or its sentinel."""
    clients = ("gateway", "worker", "redis") if SENTINEL in ports else ("gateway", "worker")
    is_redis = connection.target.component == "redis" and connection.port in ports
    return connection.source.component in clients and is_redis and connection.protocol == "TCP"


def _is_to_elsewhere(connection: Connection) -> bool:
    """Of a gateway or worker to a server of a Redis Cluster, which may have any address."""
    return connection.source.component in ("gateway", "worker") and (connection.port, connection.protocol) == (
        REDIS,
        "TCP",
    )


def _endpoints(manifests: list[Manifest]) -> Iterator[Endpoint]:
    own = {"kubernetes.io/metadata.name": "redbatch"}
    for each in of_kind(manifests, "Namespace"):
        own = {**each["metadata"].get("labels", {}), "kubernetes.io/metadata.name": each["metadata"]["name"]}
    yield Endpoint("stranger", "", own, {"app": "stranger"})
    for each in workloads(manifests):
        yield Endpoint(each["metadata"]["name"], component_of(each), own, pod_labels(each))
    yield from (Endpoint(name, "", {"kubernetes.io/metadata.name": name}, {}) for name in NAMESPACES)


def _rules(manifests: list[Manifest], pod: Endpoint, direction: str) -> list[Manifest] | None:
    """Returns the rules for a pod; None if no policy selects it, which allows everything."""
    policies = [
        each["spec"]
        for each in of_kind(manifests, "NetworkPolicy")
        if direction in each["spec"]["policyTypes"] and selects(each["spec"]["podSelector"], pod.labels)
    ]
    return [rule for each in policies for rule in each.get(direction.lower(), [])] if policies else None


def _allows(rule: Manifest, peer: Endpoint, port: int, protocol: str, pod: Endpoint) -> bool:
    """Whether a rule allows a peer (selected by each selector of one entry, in the pod's namespace by default)."""
    if not any(
        each["port"] <= port <= each.get("endPort", each["port"]) and each.get("protocol", "TCP") == protocol
        for each in rule["ports"]
    ):
        return False
    peers = rule.get("from") or rule.get("to") or [{"namespaceSelector": {}}]
    own = {"matchLabels": pod.namespace}
    return any(
        selects(each.get("namespaceSelector", own), peer.namespace)
        and selects(each.get("podSelector", {}), peer.labels)
        for each in peers
    )
