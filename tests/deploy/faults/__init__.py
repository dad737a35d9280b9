"""What is wrong with manifests: a function for each kind of fault, which returns a line for each that it finds.

Schemas say what Kubernetes takes (`schemas`), shapes what is used of it (`objects`, `pods`, `custom`). The rest is what
is between objects, and between them and the processes: references, numbers, settings, files, who may talk to whom.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.deploy.faults import custom, network, numbers, objects, probes, references, schemas, secrets, settings
from tests.deploy.manifests import Manifest

Check = Callable[[list[Manifest]], list[str]]
FIRST: tuple[Check, ...] = (schemas.refused, objects.unexpected)
THEN: tuple[Check, ...] = (
    references.elsewhere,
    references.dangling,
    references.selectors,
    numbers.unfit,
    settings.unknown,
    settings.too_short,
    settings.too_large,
    secrets.astray,
    probes.unheard,
    custom.careless,
    network.uncovered,
)
"""They read what the first ones have seen to be there."""


def faults(manifests: list[Manifest]) -> list[str]:
    """Returns all that is wrong with them; of what is not even as expected, that alone."""
    return _told(FIRST, manifests) or _told(THEN, manifests)


def _told(checks: tuple[Check, ...], manifests: list[Manifest]) -> list[str]:
    return [line for check in checks for line in check(manifests)]
