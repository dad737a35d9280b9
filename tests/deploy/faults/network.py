"""What has to talk to each other and may not, and what may without need: network policies, evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from tests.deploy.manifests import Manifest, label, of_kind, selects

ADMIN = {"gateway": GatewaySettings().admin_port, "worker": WorkerSettings().admin_port}


class Way(NamedTuple):
    """Who talks to whom on which port: a component of ours, or a namespace of others as `namespace:<name>`."""

    source: str
    target: str
    port: int
    protocol: str = "TCP"


DNS = "namespace:kube-system"
NEEDED = (
    *(Way(name, DNS, 53, protocol) for name in ("gateway", "worker", "redis") for protocol in ("TCP", "UDP")),
    Way("gateway", "redis", 6379),
    Way("worker", "redis", 6379),
    Way("namespace:default", "gateway", GatewaySettings().port),
)
NEEDED_WITH = {
    "ScaledObject": (Way("namespace:keda", "redis", 6379),),
    "PodMonitor": tuple(Way("namespace:monitoring", name, port) for name, port in ADMIN.items()),
}
FORBIDDEN = (
    Way("namespace:default", "redis", 6379),
    *(Way("namespace:default", name, port) for name, port in ADMIN.items()),
    Way("gateway", "worker", ADMIN["worker"]),
    Way("worker", "gateway", ADMIN["gateway"]),
    Way("worker", "namespace:default", 443),
    Way("redis", "namespace:default", 443),
)


def uncovered(manifests: list[Manifest]) -> list[str]:
    """Returns the ways that are needed and closed, and those that are open and not needed."""
    if not of_kind(manifests, "NetworkPolicy"):
        return ["there are no network policies"]
    kinds = {each["kind"] for each in manifests}
    needed = [*NEEDED, *(way for kind, ways in NEEDED_WITH.items() if kind in kinds for way in ways)]
    closed = [f"closed, and needed: {way}" for way in needed if not is_open(manifests, way)]
    policies = [name for name in ("gateway", "worker", "redis") if not _denied_by_default(manifests, name)]
    return (
        closed
        + [f"open, and not needed: {way}" for way in FORBIDDEN if is_open(manifests, way)]
        + [f"nothing is denied by default to {name}" for name in policies]
    )


def is_open(manifests: list[Manifest], way: Way) -> bool:
    """Whether traffic passes: the source's policies let it out, and the target's let it in."""
    out = not _is_ours(way.source) or _passes(manifests, way, "Egress")
    return out and (not _is_ours(way.target) or _passes(manifests, way, "Ingress"))


def _is_ours(end: str) -> bool:
    return not end.startswith("namespace:")


def _labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "redbatch", "app.kubernetes.io/component": component}


def _of(manifests: list[Manifest], component: str, way: str) -> Iterator[Manifest]:
    for each in of_kind(manifests, "NetworkPolicy"):
        if way in each["spec"]["policyTypes"] and selects(each["spec"]["podSelector"], _labels(component)):
            yield each


def _denied_by_default(manifests: list[Manifest], component: str) -> bool:
    return all(list(_of(manifests, component, way)) for way in ("Ingress", "Egress"))


def _passes(manifests: list[Manifest], way: Way, direction: str) -> bool:
    ours, peer, side = (way.target, way.source, "from") if direction == "Ingress" else (way.source, way.target, "to")
    policies = list(_of(manifests, ours, direction))
    if not policies:
        return True  # what no policy selects may talk to all
    rules = [rule for each in policies for rule in each["spec"].get(direction.lower(), [])]
    return any(_peer(rule.get(side), peer) and _port(rule, way) for rule in rules)


def _port(rule: Manifest, way: Way) -> bool:
    named = [(each["port"], each.get("protocol", "TCP")) for each in rule.get("ports", [])]
    assert all(isinstance(port, int) for port, _ in named), "ports by number: not every network plugin knows names"
    return not named or (way.port, way.protocol) in named


def _peer(peers: list[Manifest] | None, peer: str) -> bool:
    if peers is None:
        return True
    for each in peers:
        assert set(each) <= {"podSelector", "namespaceSelector"}, label({"kind": "peer", "metadata": each})
        elsewhere = each.get("namespaceSelector")
        if _is_ours(peer):
            if elsewhere is None and selects(each["podSelector"], _labels(peer)):
                return True
        elif elsewhere is not None and selects(
            elsewhere, {"kubernetes.io/metadata.name": peer.removeprefix("namespace:")}
        ):
            return True
    return False
