"""Probes that ask for what there is not, or kill for what no pod can be blamed for; ports that nobody listens on."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from api.settings import GatewaySettings
from tests.deploy.faults.settings import settings_of
from tests.deploy.manifests import Manifest, containers, label, of_kind, pod_labels, pod_of

PARTS = {"gateway": {"redis", "worker", "draining"}, "worker": {"redis", "engine"}}
"""What /readyz of a process may miss (tests/deploy/test_probes.py asks real ones)."""

PATHS = {"startupProbe": {"/livez", "/readyz"}, "livenessProbe": {"/livez"}, "readinessProbe": {"/readyz"}}
"""Alive is who comes round: a process that waits for Redis is, and need not be killed for it."""


def mistaken(manifests: list[Manifest]) -> list[str]:
    """Returns probes and ports of gateways and workers that are not those of the processes."""
    found = []
    for each in of_kind(manifests, "Deployment"):
        component = pod_labels(each)["app.kubernetes.io/component"]
        for container in containers(pod_of(each)):
            found += [f"{label(each)}: {fault}" for fault in _probes(component, container)]
            found += [f"{label(each)}: {fault}" for fault in _ports(manifests, component, container)]
    for each in of_kind(manifests, "PodMonitor"):
        paths = [end["path"] for end in each["spec"]["podMetricsEndpoints"]]
        found += [f"{label(each)}: metrics are not at {path}" for path in paths if path != "/metrics"]
    return found


def _probes(component: str, container: Manifest) -> Iterator[str]:
    for name, paths in PATHS.items():
        asked = urlsplit(container[name]["httpGet"]["path"]) if name in container else urlsplit("")
        query = parse_qs(asked.query)
        if name in container and (asked.path not in paths or set(query) - {"exclude"}):
            yield f"{name} asks for {asked.geturl()}"
        if unknown := set(query.get("exclude", [])) - PARTS[component]:
            yield f"{name} excludes {sorted(unknown)}, which never is missing"
        if name in container and container[name]["httpGet"]["port"] != "admin":
            yield f"{name} does not ask the admin port"


def _ports(manifests: list[Manifest], component: str, container: Manifest) -> Iterator[str]:
    settings = settings_of(manifests, component, container)
    if settings is None:
        return
    wanted = {"admin": settings.admin_port}
    if isinstance(settings, GatewaySettings):
        wanted["http"] = settings.port
    there = {port["name"]: port["containerPort"] for port in container["ports"]}
    if there != wanted:
        yield f"its ports are {wanted}, not {there}"
