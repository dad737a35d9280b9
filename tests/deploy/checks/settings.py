"""Variables that are no settings, values that are none, and graces that end before what they are for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

from pydantic import ValidationError

from api.asked import MAX_TIMEOUT_MS
from api.server import LINGER_S
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from tests.deploy.checks.shapes import amount
from tests.deploy.manifests import Manifest, component_of, config_of, containers, label, of_kind, pod_of

Ours = GatewaySettings | WorkerSettings
Kind = TypeVar("Kind", bound=Ours)
OURS: dict[str, type[Ours]] = {"gateway": GatewaySettings, "worker": WorkerSettings}
MARGIN_S = 10.0
REDIS_SHARE = 0.7
MOUNTED = "/run/secrets/"


def unknown(manifests: list[Manifest]) -> list[str]:
    """Returns the variables that are none of its process' settings, and values that a setting does not take."""
    return [
        f"{label(each)}: {fault}"
        for each, container, kind in _ours(manifests)
        for fault in _unknown(manifests, container, kind)
    ]


def _ours(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest, type[Ours]]]:
    for each in of_kind(manifests, "Deployment"):
        kind = OURS[component_of(each)]
        yield from ((each, container, kind) for container in containers(pod_of(each)))


def _unknown(manifests: list[Manifest], container: Manifest, kind: type[Ours]) -> Iterator[str]:
    values, own = config_of(manifests, container), [each["name"] for each in container.get("env", [])]
    shared = config_of(manifests, {**container, "env": []})
    for name in {name.removesuffix("_FILE") for name in own} & {name.removesuffix("_FILE") for name in shared}:
        yield f"{name} is its pod's own, and set for all"
    for name in [*values, *own]:
        field = name.removeprefix("REDBATCH_").removesuffix("_FILE").lower()
        if not name.startswith("REDBATCH_") or field not in kind.model_fields:
            yield f"{name} is no setting"
    try:
        settings_from(values, kind)
    except ValidationError as error:
        yield from (f"{each['loc'][0]}: {each['msg']}" for each in error.errors())


def settings_from(values: dict[str, str], kind: type[Kind]) -> Kind:
    """Returns the settings that variables make, but for what is in files that only a container has."""
    known = {
        name.removeprefix("REDBATCH_").lower(): value for name, value in values.items() if not value.startswith(MOUNTED)
    }
    return kind(**{name: value for name, value in known.items() if name in kind.model_fields})  # type: ignore[arg-type]  # as text, as they come


def settings_of(manifests: list[Manifest], component: str, container: Manifest) -> Ours | None:
    """Returns the settings of a container; None if one is refused."""
    try:
        return settings_from(config_of(manifests, container), OURS[component])
    except ValidationError:
        return None


def too_short(manifests: list[Manifest]) -> list[str]:
    """Returns graces that end before the pod has drained, and drains that end before all who wait have an answer."""
    found = []
    for each, container, _ in _ours(manifests):
        settings = settings_of(manifests, component_of(each), container)
        takes_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0) + MARGIN_S
        if isinstance(settings, GatewaySettings):
            if takes_s == MARGIN_S:
                found.append(f"{label(each)}: no preStop, so it may leave before anybody knows")
            takes_s += settings.drain_delay_s + settings.drain_grace_s + LINGER_S
            if settings.drain_grace_s * 1000 < MAX_TIMEOUT_MS:
                found.append(f"{label(each)}: drain_grace_s is less than the longest time that a client may name")
        elif isinstance(settings, WorkerSettings):
            takes_s += settings.drain_grace_s
        grace_s = pod_of(each).get("terminationGracePeriodSeconds", 30)
        if grace_s < takes_s:
            found.append(f"{label(each)}: a grace of {grace_s} s, and it may take {takes_s} s to leave")
    return found


def too_large(manifests: list[Manifest]) -> list[str]:
    """Returns whether Redis may use more of its memory than leaves room for the copy that a rewrite makes."""
    found = []
    for each in of_kind(manifests, "StatefulSet"):
        for container in containers(pod_of(each)):
            words = [*container.get("command", []), *container.get("args", [])]
            (most_mb,) = [int(after.removesuffix("mb")) for word, after in pairwise(words) if word == "--maxmemory"]
            limit = amount(container["resources"]["limits"]["memory"])
            if most_mb * 2**20 > limit * REDIS_SHARE:
                found.append(f"{label(each)}: a maxmemory of {most_mb} MiB is too much for its limit")
    return found
