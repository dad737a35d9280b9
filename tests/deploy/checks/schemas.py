"""What Kubernetes' own schemas refuse, in the oldest version that is meant and in the newest that is known."""

from __future__ import annotations

import json
from functools import cache

from kubernetes_validate import utils

from tests.deploy import custom_resources
from tests.deploy.manifests import Manifest, label

OLDEST = "1.30"
"""The first in which `preStop: sleep` is there without being asked for."""

CUSTOM = (".coreos.com/", "keda.sh/", "cert-manager.io/", "gateway.networking.k8s.io/")
"""Groups of custom resources, whose definitions the cluster has from others."""


def refused(manifests: list[Manifest]) -> list[str]:
    """Returns what the schemas refuse, unknown fields too. To have no manifests at all is a fault as well."""
    if not manifests:
        return ["there is nothing in it"]
    return [line for each in manifests for line in (_custom(each) if is_custom(each) else _own(each))]


def is_custom(manifest: Manifest) -> bool:
    """Whether its kind is not one of Kubernetes' own."""
    return any(group in str(manifest.get("apiVersion")) for group in CUSTOM)


def _custom(manifest: Manifest) -> list[str]:
    if not custom_resources.known(manifest["kind"]):
        return [f"{label(manifest)}: there is no schema of this kind in tests/deploy/schemas"]
    return [f"{label(manifest)}: {fault}" for fault in custom_resources.faults(manifest)]


def _own(manifest: Manifest) -> list[str]:
    text = json.dumps(manifest, sort_keys=True)
    return [line for version in (OLDEST, utils.latest_version()) for line in _refused(text, version)]


@cache  # overlays share most of what they are made of, and a look takes a while
def _refused(text: str, version: str) -> tuple[str, ...]:
    manifest = json.loads(text)
    try:
        utils.validate(manifest, version, strict=True)
    except utils.ValidationError as error:
        where = ".".join(str(each) for each in error.path)
        return (f"{label(manifest)}: Kubernetes {version} refuses {where}: {error.message}",)
    except (utils.SchemaNotFoundError, KeyError):
        return (f"{label(manifest)}: Kubernetes {version} knows no such kind",)
    return ()
