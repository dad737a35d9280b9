"""What is wrong with manifests: a function for each kind of fault, which returns a line for each that it finds.

Schemas say what Kubernetes takes (`schemas`); the rest is what they do not see: quantities, names, references, rights,
settings, who may talk to whom.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.deploy.faults import custom, network, pods, probes, references, schemas, secrets, settings
from tests.deploy.manifests import Manifest

CHECKS: tuple[Callable[[list[Manifest]], list[str]], ...] = (
    schemas.refused,
    pods.rights,
    pods.images,
    pods.quantities,
    pods.rollouts,
    references.elsewhere,
    references.dangling,
    references.selectors,
    references.ports,
    settings.unknown,
    settings.too_short,
    settings.too_large,
    secrets.astray,
    probes.mistaken,
    custom.careless,
    network.uncovered,
)


def faults(manifests: list[Manifest]) -> list[str]:
    """Returns all that is wrong with them."""
    return [line for check in CHECKS for line in check(manifests)]
