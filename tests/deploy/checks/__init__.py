"""What is wrong with manifests: a function for each kind of fault, which returns a line for each that it finds.

Schemas say what Kubernetes takes (`schemas`), shapes what is used of it (`objects`, `pods`, `custom`). The rest is what
is between objects, and between them and the processes: references, numbers, settings, files, who may talk to whom.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.deploy.checks import custom, network, numbers, objects, probes, references, schemas, secrets, settings
from tests.deploy.manifests import Manifest

Check = Callable[[list[Manifest]], list[str]]
THEN: tuple[Check, ...] = (
    schemas.refused,
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


def faults(manifests: list[Manifest]) -> list[str]:
    """Returns all that is wrong with them; of what has other fields than are expected, that alone.

    The other checks read what the first has seen to be there.
    """
    return objects.unexpected(manifests) or [line for check in THEN for line in check(manifests)]
