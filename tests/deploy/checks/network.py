"""What has to talk to each other and may not, and what may without need: network policies, evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from tests.deploy.manifests import Manifest, component_of, of_kind, pod_labels, selects, workloads

ADMIN = (GatewaySettings().admin_port, WorkerSettings().admin_port)
HTTP = GatewaySettings().port
DNS = (53, 5353)
REDIS = 6379
PORTS = (*DNS, 80, 443, REDIS, HTTP, *ADMIN)
PROTOCOLS = ("TCP", "UDP")
OTHERS = ("default", "kube-system", "keda", "monitoring", "ingress")
"""Namespaces that are not ours, in each of which is a pod without a label that anybody knows."""


class End(NamedTuple):
    """A pod: a workload's, by its kind of component; a `stranger` in our namespace; or one of another namespace."""

    name: str
    component: str
    namespace: dict[str, str]
    labels: dict[str, str]

    @property
    def ours(self) -> bool:
        """Whether it is in our namespace, where the policies are."""
        return self.name not in OTHERS


class Way(NamedTuple):
    """Who talks to whom on which port."""

    source: End
    target: End
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.source.name} to {self.target.name} at {self.port} ({self.protocol})"


def uncovered(manifests: list[Manifest]) -> list[str]:
    """Returns what is closed at one end and needed, and all else that is open: each end by itself."""
    found, kinds = [], {each["kind"] for each in manifests}
    ends = list(_ends(manifests))
    for own, direction in product([end for end in ends if end.ours], ("Ingress", "Egress")):
        rules = _rules(manifests, own, direction)
        for peer, port, protocol in product(ends, PORTS, PROTOCOLS):
            way = Way(peer, own, port, protocol) if direction == "Ingress" else Way(own, peer, port, protocol)
            needed = may_enter(way, kinds) if direction == "Ingress" else may_leave(way)
            if needed != (rules is None or any(_passes(rule, way, direction) for rule in rules)):
                found.append(f"{direction} {'closed, and' if needed else 'open, and not'} needed: {way}")
    return found


def may_leave(way: Way) -> bool:
    """Whether a pod of ours may ask this. The DNS may be anywhere, on a node for example."""
    return way.port in DNS or _to_redis(way)


def may_enter(way: Way, kinds: set[str]) -> bool:
    """Whether a pod of ours may be asked this. The clients of gateways are anywhere: the keys are the door."""
    source, target = way.source.name, way.target.component
    return way.protocol == "TCP" and (
        _to_redis(way)
        or (target == "gateway" and way.port == HTTP)
        or ("ScaledObject" in kinds and source == "keda" and target == "redis" and way.port == REDIS)
        or ("PodMonitor" in kinds and source == "monitoring" and target in ("gateway", "worker") and way.port in ADMIN)
    )


def _to_redis(way: Way) -> bool:
    source, target = way.source.component, way.target.component
    return source in ("gateway", "worker") and target == "redis" and (way.port, way.protocol) == (REDIS, "TCP")


def _ends(manifests: list[Manifest]) -> Iterator[End]:
    ours = {"kubernetes.io/metadata.name": "redbatch"}
    for each in of_kind(manifests, "Namespace"):
        ours = {**each["metadata"]["labels"], "kubernetes.io/metadata.name": each["metadata"]["name"]}
    yield End("stranger", "", ours, {"app": "stranger"})
    for each in workloads(manifests):
        yield End(each["metadata"]["name"], component_of(each), ours, pod_labels(each))
    yield from (End(name, "", {"kubernetes.io/metadata.name": name}, {}) for name in OTHERS)


def _rules(manifests: list[Manifest], own: End, direction: str) -> list[Manifest] | None:
    """Returns what lets something pass; None where no policy selects a pod, which may talk to all then."""
    policies = [
        each["spec"]
        for each in of_kind(manifests, "NetworkPolicy")
        if direction in each["spec"]["policyTypes"] and selects(each["spec"]["podSelector"], own.labels)
    ]
    return [rule for each in policies for rule in each.get(direction.lower(), [])] if policies else None


def _passes(rule: Manifest, way: Way, direction: str) -> bool:
    peers, peer = (rule.get("from"), way.source) if direction == "Ingress" else (rule.get("to"), way.target)
    return _port(rule, way) and _peer(peers, peer)


def _port(rule: Manifest, way: Way) -> bool:
    return any((each["port"], each.get("protocol", "TCP")) == (way.port, way.protocol) for each in rule["ports"])


def _peer(peers: list[Manifest] | None, peer: End) -> bool:
    """Whether a rule is for a peer: for one that each selector of one of its entries takes in."""
    if not peers:
        return True
    for each in peers:
        there = selects(each["namespaceSelector"], peer.namespace) if "namespaceSelector" in each else peer.ours
        if there and selects(each.get("podSelector", {}), peer.labels):
            return True
    return False
