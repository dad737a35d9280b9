"""Validation by Kubernetes' own schemas, in the oldest supported and the newest known version, and by those of CRDs."""

from __future__ import annotations

import json
from functools import cache

from kubernetes_validate import utils

from tests.deploy import custom_resources
from tests.deploy.manifests import Manifest, label

OLDEST = "1.30"
"""The first version in which `preStop: sleep` is enabled by default."""

CUSTOM = (".coreos.com/", "keda.sh/", "cert-manager.io/", "gateway.networking.k8s.io/")
"""API groups of custom resources, whose definitions other projects install in the cluster."""


def violations(manifests: list[Manifest]) -> list[str]:
    """Returns all violations of the schemas, unknown fields included. An empty list of manifests is a fault too."""
    if not manifests:
        return ["there are no manifests"]
    return [line for each in manifests for line in (_validate_custom(each) if is_custom(each) else _validate(each))]


def is_custom(manifest: Manifest) -> bool:
    """Whether the kind is a custom resource."""
    return any(group in str(manifest.get("apiVersion")) for group in CUSTOM)


def _validate_custom(manifest: Manifest) -> list[str]:
    if not custom_resources.has_schema(manifest["kind"]):
        return [f"{label(manifest)}: there is no schema of this kind in tests/deploy/schemas"]
    return [f"{label(manifest)}: {fault}" for fault in custom_resources.violations(manifest)]


def _validate(manifest: Manifest) -> list[str]:
    text = json.dumps(manifest, sort_keys=True)
    return [line for version in (OLDEST, utils.latest_version()) for line in _validate_text(text, version)]


@cache  # overlays share most objects, and validation is slow
def _validate_text(text: str, version: str) -> tuple[str, ...]:
    manifest = json.loads(text)
    try:
        utils.validate(manifest, version, strict=True)
    except utils.ValidationError as error:
        where = ".".join(str(each) for each in error.path)
        return (f"{label(manifest)}: Kubernetes {version} refuses {where}: {error.message}",)
    except (utils.SchemaNotFoundError, KeyError):
        return (f"{label(manifest)}: Kubernetes {version} has no such kind",)
    return ()
