"""Environment variables beside the settings classes: names, values, and grace periods that outlast the drain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pydantic import ValidationError

from api.dialects.request import MAX_TIMEOUT_MS
from api.server import LINGER_S
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from tests.deploy.manifests import (
    Manifest,
    component_of,
    config_of,
    containers,
    label,
    of_kind,
    pod_of,
    uses_redis_cluster,
)

Settings = GatewaySettings | WorkerSettings
Kind = TypeVar("Kind", bound=Settings)
SETTINGS: dict[str, type[Settings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}
MARGIN_S = 10.0
MOUNTED = "/run/secrets/"
CLUSTER_URL = "redis+cluster://a"
"""What the file with the URL has where queues have shards."""


def check(manifests: list[Manifest]) -> Iterator[str]:
    """Yields variables that are no settings, values that a setting refuses, and grace periods that are too short."""
    for each in of_kind(manifests, "Deployment"):
        kind = SETTINGS[component_of(each)]
        for container in containers(pod_of(each)):
            faults = [*_variable_faults(manifests, container, kind), *_grace_faults(manifests, each, container)]
            yield from (f"{label(each)}: {fault}" for fault in faults)
    yield from _shard_faults(manifests)


def _shard_faults(manifests: list[Manifest]) -> Iterator[str]:
    configs = {
        label(each): config_of(manifests, container)
        for each in of_kind(manifests, "Deployment")
        for container in containers(pod_of(each))
    }
    counts = {name: config.get("REDBATCH_QUEUE_SHARDS", "1") for name, config in configs.items()}
    if len({*counts.values()}) > 1:
        yield f"REDBATCH_QUEUE_SHARDS differs: {counts}"
    if uses_redis_cluster(manifests) and "1" in counts.values():
        yield f"REDBATCH_QUEUE_SHARDS: without, a Redis Cluster has a queue on one master: {counts}"


def parse_settings(values: dict[str, str], kind: type[Kind]) -> Kind:
    """Returns the settings that variables make, without those that are files which only a container has."""
    fields = {
        name.removeprefix("REDBATCH_").lower(): value for name, value in values.items() if not value.startswith(MOUNTED)
    }
    if "queue_shards" in fields:
        fields["redis_url"] = CLUSTER_URL
    return kind(**{name: value for name, value in fields.items() if name in kind.model_fields})  # type: ignore[arg-type]  # as text, like the environment


def settings_of(manifests: list[Manifest], component: str, container: Manifest) -> Settings | None:
    """Returns the settings of a container; None if a value is refused."""
    try:
        return parse_settings(config_of(manifests, container), SETTINGS[component])
    except ValidationError:
        return None


def _variable_faults(manifests: list[Manifest], container: Manifest, kind: type[Settings]) -> Iterator[str]:
    own = [each["name"] for each in container.get("env", [])]
    shared = config_of(manifests, {**container, "env": []})
    for name in {name.removesuffix("_FILE") for name in own} & {name.removesuffix("_FILE") for name in shared}:
        yield f"{name} is set by the pod and by the ConfigMap"
    for name in [*shared, *own]:
        field = name.removeprefix("REDBATCH_").removesuffix("_FILE").lower()
        if not name.startswith("REDBATCH_") or field not in kind.model_fields:
            yield f"{name} is no setting"
    try:
        parse_settings(config_of(manifests, container), kind)
    except ValidationError as error:
        yield from (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())


def _grace_faults(manifests: list[Manifest], workload: Manifest, container: Manifest) -> Iterator[str]:
    """The pod's grace period covers preStop and the drain; a gateway's drain covers the longest client timeout."""
    settings = settings_of(manifests, component_of(workload), container)
    if settings is None:
        return
    pre_stop_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    needed_s = pre_stop_s + settings.drain_grace_s + MARGIN_S
    if isinstance(settings, GatewaySettings):
        needed_s += settings.drain_delay_s + LINGER_S
        if not pre_stop_s:
            yield "no preStop: it would leave before proxies know"
        if settings.drain_grace_s * 1000 < MAX_TIMEOUT_MS:
            yield "drain_grace_s is less than the longest timeout of a client"
    grace_s = pod_of(workload).get("terminationGracePeriodSeconds", 30)
    if grace_s < needed_s:
        yield f"terminationGracePeriodSeconds is {grace_s} s, and leaving may take {needed_s} s"
