"""Ports, probes and proxies beside the processes: declared ports, real routes, largest body, longest timeout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api.dialects.request import MAX_TIMEOUT_MS
from api.settings import GatewaySettings
from tests.deploy.checks.settings import settings_of
from tests.deploy.manifests import Manifest, component_of, containers, label, of_kind, pod_of

PARTS = {"gateway": {"redis", "worker", "draining"}, "worker": {"redis", "engine"}}
"""Names that /readyz of a process may report as missing (tests/deploy/test_probes.py compares with real processes)."""

PATHS = {
    "gateway": {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz?exclude=worker"},
    "worker": {"startup": "/readyz?exclude=redis", "liveness": "/livez", "readiness": "/readyz"},
}
"""Paths of the probes, for the reasons in docs/deploy.md: no outage of Redis restarts a process, and a gateway without
a worker answers requests itself."""

NGINX = "nginx.ingress.kubernetes.io/proxy-"


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields ports on which no process listens, probes of other routes, and proxies that cut off valid requests."""
    finders = {
        "Deployment": _container_faults,
        "Service": _service_faults,
        "Ingress": _ingress_faults,
        "HTTPRoute": _route_faults,
    }
    for each in of_kind(manifests, *finders):
        yield from (f"{label(each)}: {fault}" for fault in finders[each["kind"]](manifests, each))


def _container_faults(manifests: list[Manifest], workload: Manifest) -> Iterator[str]:
    component = component_of(workload)
    for container in containers(pod_of(workload)):
        settings = settings_of(manifests, component, container)
        if settings is not None:
            expected = {"admin": settings.admin_port}
            if isinstance(settings, GatewaySettings):
                expected["http"] = settings.port
            declared = {port.get("name"): port["containerPort"] for port in container.get("ports", [])}
            if declared != expected:
                yield f"its ports are {expected}, not {declared}"
        for name, path in PATHS.get(component, {}).items():
            request = container.get(f"{name}Probe", {}).get("httpGet")
            if request != {"path": path, "port": "admin"}:
                yield f"its {name}Probe requests {request}, not {path} of the port admin"


def _service_faults(_: list[Manifest], service: Manifest) -> Iterator[str]:
    """Only the name that the StatefulSet needs is headless: clients need an address that outlives the pod of Redis."""
    name = "http" if service["metadata"]["name"] == "gateway" else "redis"
    if [(each.get("targetPort"), each.get("protocol", "TCP")) for each in service["spec"]["ports"]] != [(name, "TCP")]:
        yield f"its targetPort or protocol is not that of {name}"
    if (service["spec"].get("clusterIP") == "None") != (service["metadata"]["name"] == "redis-pods"):
        yield "clusterIP: only redis-pods is headless"


def _ingress_faults(_: list[Manifest], ingress: Manifest) -> Iterator[str]:
    annotations = ingress["metadata"].get("annotations", {})
    if _number(annotations.get(f"{NGINX}body-size"), "m") * 10**6 < GatewaySettings().max_job_body_bytes:
        yield "proxy-body-size is less than a job may have"
    if _number(annotations.get(f"{NGINX}read-timeout"), "") * 1000 < MAX_TIMEOUT_MS:
        yield "proxy-read-timeout is less than the longest timeout of a client"
    for path in (path for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]):
        if (path["path"], path["pathType"], path["backend"]["service"]["name"]) != ("/", "Prefix", "gateway"):
            yield f"it does not lead all paths to the gateway: {path}"


def _route_faults(_: list[Manifest], route: Manifest) -> Iterator[str]:
    for rule in route["spec"]["rules"]:
        if _number(rule.get("timeouts", {}).get("request"), "s") * 1000 < MAX_TIMEOUT_MS:
            yield "its timeouts are less than the longest timeout of a client"
        if [each["name"] for each in rule["backendRefs"]] != ["gateway"]:
            yield "backendRefs is not the gateway"


def _number(text: object, unit: str) -> int:
    """Returns the number before a unit; 0 if the text has another form."""
    match = re.fullmatch(rf"(\d+){unit}", str(text))
    return int(match[1]) if match else 0
