"""Plays what a Service is: the pods that it selects, by their address and its port."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.deploy.manifests import Manifest, label, selects
from tests.deploy.simulated_cluster.container import known, port_of
from tests.deploy.simulated_cluster.kubelet import Pod


class Service:
    """A Service with one port.

    Args:
        manifest: of the Service.
        pods: returns all pods of the cluster, those that leave included.
    """

    def __init__(self, manifest: Manifest, pods: Callable[[], Iterable[Pod]]) -> None:
        spec = manifest["spec"]
        known(spec, {"selector", "ports"}, label(manifest))
        (port,) = spec["ports"]
        self._namespace = manifest["metadata"]["namespace"]
        self._selector = {"matchLabels": spec["selector"]}
        self._port = port.get("targetPort", port["port"])
        self._pods = pods

    def endpoints(self) -> list[str]:
        """Returns where requests may be sent: to what is ready, and leaves not, and has a port of that name."""
        found = []
        for pod in self._pods():
            port = port_of(pod.container, self._port)
            selected = selects(self._selector, dict(pod.place.labels)) and pod.place.namespace == self._namespace
            if selected and pod.ready and not pod.leaving and port is not None:
                found.append(f"{pod.place.address}:{port}")
        return sorted(found)
