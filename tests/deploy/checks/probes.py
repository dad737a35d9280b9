"""Ports that nobody listens on: those of the containers are those of the processes' settings."""

from __future__ import annotations

from api.settings import GatewaySettings
from tests.deploy.checks.settings import settings_of
from tests.deploy.manifests import Manifest, component_of, containers, label, of_kind, pod_of

PARTS = {"gateway": {"redis", "worker", "draining"}, "worker": {"redis", "engine"}}
"""What /readyz of a process may miss (tests/deploy/test_probes.py asks real ones)."""


def unheard(manifests: list[Manifest]) -> list[str]:
    """Returns the containers of gateways and workers with other ports than those that their processes listen on."""
    found = []
    for each in of_kind(manifests, "Deployment"):
        for container in containers(pod_of(each)):
            settings = settings_of(manifests, component_of(each), container)
            if settings is None:
                continue
            wanted = {"admin": settings.admin_port}
            if isinstance(settings, GatewaySettings):
                wanted["http"] = settings.port
            there = {port.get("name"): port["containerPort"] for port in container["ports"]}
            if there != wanted:
                found.append(f"{label(each)}: its ports are {wanted}, not {there}")
    return found
