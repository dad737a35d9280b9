"""Variables that are no settings, values that are none, and graces that end before what they are for."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from api.asked import MAX_TIMEOUT_MS
from api.server import LINGER_S
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from shared.settings import QueueSettings
from tests.deploy.faults.references import config_of
from tests.deploy.manifests import Manifest, containers, label, of_kind, pod_labels, pod_of

OURS: dict[str, type[QueueSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}
MARGIN_S = 10.0
MOUNTED = "/run/secrets/"


def unknown(manifests: list[Manifest]) -> list[str]:
    """Returns the variables that are none of its process' settings, and values that a setting does not take."""
    return [
        f"{label(each)}: {fault}"
        for each, container, kind in _ours(manifests)
        for fault in _unknown(manifests, container, kind)
    ]


def _ours(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest, type[QueueSettings]]]:
    for each in of_kind(manifests, "Deployment"):
        kind = OURS[pod_labels(each)["app.kubernetes.io/component"]]
        yield from ((each, container, kind) for container in containers(pod_of(each)))


def _unknown(manifests: list[Manifest], container: Manifest, kind: type[QueueSettings]) -> Iterator[str]:
    values = config_of(manifests, container)
    for name in [*values, *(each["name"] for each in container.get("env", []))]:
        field = name.removeprefix("REDBATCH_").removesuffix("_FILE").lower()
        if not name.startswith("REDBATCH_") or field not in kind.model_fields:
            yield f"{name} is no setting"
    try:
        _settings(values, kind)
    except ValidationError as error:
        yield from (f"{each['loc'][0]}: {each['msg']}" for each in error.errors())


def _settings(values: dict[str, str], kind: type[QueueSettings]) -> QueueSettings:
    known = {
        name.removeprefix("REDBATCH_").lower(): value
        for name, value in values.items()
        if not value.startswith(MOUNTED)  # a file that only its pod has
    }
    return kind(**{name: value for name, value in known.items() if name in kind.model_fields})  # type: ignore[arg-type]  # as text, as they come


def too_short(manifests: list[Manifest]) -> list[str]:
    """Returns graces that end before the pod has drained, and drains that end before all who wait have an answer."""
    found = []
    for each, container, kind in _ours(manifests):
        try:
            settings = _settings(config_of(manifests, container), kind)
        except ValidationError:
            continue  # `unknown` tells of it
        takes_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0) + MARGIN_S
        if isinstance(settings, GatewaySettings):
            takes_s += settings.drain_delay_s + settings.drain_grace_s + LINGER_S
            if settings.drain_grace_s * 1000 < MAX_TIMEOUT_MS:
                found.append(f"{label(each)}: drain_grace_s is less than the longest time that a client may name")
        elif isinstance(settings, WorkerSettings):
            takes_s += settings.drain_grace_s
        grace_s = pod_of(each).get("terminationGracePeriodSeconds", 30)
        if grace_s < takes_s:
            found.append(f"{label(each)}: a grace of {grace_s} s, and it may take {takes_s} s to leave")
    return found
