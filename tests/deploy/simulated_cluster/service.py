"""A simulated Service: the endpoints of the pods that it selects, with their port."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.deploy.manifests import Manifest, label, selects
from tests.deploy.simulated_cluster.container import port_of, require_known_keys
from tests.deploy.simulated_cluster.kubelet import Pod


class Service:
    """A Service with one port.

    Args:
        manifest: of the Service.
        pods: returns all pods of the cluster, including terminating ones.
    """

    def __init__(self, manifest: Manifest, pods: Callable[[], Iterable[Pod]]) -> None:
        spec = manifest["spec"]
        require_known_keys(spec, {"selector", "ports"}, label(manifest))
        (port,) = spec["ports"]
        self._namespace = manifest["metadata"]["namespace"]
        self._selector = {"matchLabels": spec["selector"]}
        self._port = port.get("targetPort", port["port"])
        self._pods = pods

    def endpoints(self) -> list[str]:
        """Returns the endpoints of ready pods that are not terminating and have a port of that name."""
        found = []
        for pod in self._pods():
            port = port_of(pod.container, self._port)
            selected = selects(self._selector, dict(pod.identity.labels)) and pod.identity.namespace == self._namespace
            if selected and pod.ready and not pod.terminating and port is not None:
                found.append(f"{pod.identity.address}:{port}")
        return sorted(found)
