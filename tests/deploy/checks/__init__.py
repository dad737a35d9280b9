"""Checks of the manifests. Each yields one line per fault, and is about facts that no schema sees.

`schemas` validates every object first. The rest is about references between objects, settings, numbers that must agree,
ports and probes, network policies, secrets, and the restrictions and rollouts that docs/deploy.md promises.
"""

from __future__ import annotations

from tests.deploy.checks import network, ports, references, resources, scaling, schemas, secrets, security, settings
from tests.deploy.manifests import Manifest

CHECKS = (references, settings, resources, ports, secrets, security, network, scaling)


def find_faults(manifests: list[Manifest]) -> list[str]:
    """Returns all faults; violations of a schema alone if there are any, because the other checks rely on its types."""
    return schemas.violations(manifests) or [line for each in CHECKS for line in each.check(manifests)]
