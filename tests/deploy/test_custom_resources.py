"""The schemas of custom resources: they take what the definitions take, and no misspelt field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.deploy.custom_resources import faults, known

SCALED: dict[str, Any] = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "worker"},
    "spec": {
        "scaleTargetRef": {"name": "worker"},
        "minReplicaCount": 1,
        "fallback": {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"},
        "triggers": [
            {"type": "redis-streams", "metadata": {"streamLength": "512"}, "authenticationRef": {"name": "redis"}}
        ],
    },
}
AUTHENTICATION: dict[str, Any] = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "TriggerAuthentication",
    "metadata": {"name": "redis"},
    "spec": {"secretTargetRef": [{"parameter": "password", "name": "redis", "key": "keda"}]},
}


@pytest.mark.parametrize("resource", [SCALED, AUTHENTICATION], ids=lambda resource: resource["kind"])
def test_what_is_right_has_no_fault(resource: dict[str, Any]) -> None:
    """Each as it stands in KEDA's documents."""
    assert faults(resource) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "minReplicas"), 1),
        (("spec", "minReplicaCount"), "1"),
        (("spec", "fallback", "behavior"), "current"),
        (("spec", "triggers", 0, "metadata", "streamLength"), 512),
        (("spec", "triggers", 0, "authentication"), {"name": "redis"}),
        (("apiVersion",), "keda.sh/v1"),
    ],
    ids=lambda it: str(it[-1]) if isinstance(it, tuple) else "",
)
def test_what_is_wrong_is_named(path: tuple[str | int, ...], value: object) -> None:
    """A field that there is not, a number for a text, a value that is none of those, another version."""
    resource: Any = copy.deepcopy(SCALED)
    *way, last = path
    inner = resource
    for step in way:
        inner = inner[step]
    inner[last] = value
    assert len(faults(resource)) == 1


def test_other_kinds_are_not_known() -> None:
    """They are Kubernetes' own, and others check them."""
    assert known("PodMonitor")
    assert not known("Deployment")
