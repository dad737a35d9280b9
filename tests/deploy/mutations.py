"""Deliberate faults in the manifests, read from mutations.txt: each must be found by the checks.

A line is `KIND NAME PATH = VALUE -> TEXT`. PATH is where in the object VALUE replaces what is there; `pod` and
`container` abbreviate the path to these in a workload. A step into a list is an index or the name of an element; `+`
appends. Without a VALUE the field is deleted. TEXT must occur in a fault; without it, a fault must begin with kind and
name and contain the last step of the path. An indented line continues the line before.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.deploy.manifests import Manifest

ABBREVIATIONS = {"pod": "spec.template.spec", "container": "spec.template.spec.containers.0"}
NAME_KEYS = ("name", "mountPath", "parameter")


class Mutation(NamedTuple):
    """One deliberate fault."""

    kind: str
    name: str
    path: str
    value: str
    text: str

    @classmethod
    def parse(cls, line: str) -> Mutation:
        """Returns the mutation of a line."""
        change, _, text = line.partition(" -> ")
        place, _, value = change.partition(" = ")
        kind, name, path = place.split()
        return cls(kind, name, path, value, text)

    def apply(self, manifests: list[Manifest]) -> list[Manifest]:
        """Returns a copy of the manifests with this fault."""
        mutated = copy.deepcopy(manifests)
        first, *rest = self.path.split(".")
        *way, last = [*ABBREVIATIONS.get(first, first).split("."), *rest]
        tree: Any = next(each for each in mutated if self._is_of(each))
        for step in way:
            tree = tree[_key(tree, step)]
        if not self.value:
            del tree[_key(tree, last)]
        elif last == "+":
            tree.append(yaml.safe_load(self.value))
        else:
            tree[_key(tree, last)] = yaml.safe_load(self.value)
        return mutated

    def is_found(self, faults: list[str]) -> bool:
        """Whether one of the faults reports it."""
        if self.text:
            return any(self.text in fault for fault in faults)
        last = [step for step in self.path.split(".") if step != "+"][-1]
        return any(fault.startswith(f"{self.kind} {self.name}") and last in fault for fault in faults)

    def _is_of(self, manifest: Manifest) -> bool:
        name = str(manifest["metadata"]["name"])
        generated = self.kind == "ConfigMap" and name.startswith(f"{self.name}-")  # the name ends in a hash
        return manifest["kind"] == self.kind and (name == self.name or generated)


def _key(tree: Any, step: str) -> Any:  # noqa: ANN401 - a tree of YAML
    """Returns the key or index of a step; commas in it are dots."""
    step = step.replace(",", ".")
    if not isinstance(tree, list):
        return step
    if step.isdigit():
        return int(step)
    return next(index for index, each in enumerate(tree) if step in [each.get(key) for key in NAME_KEYS])


def _parse(text: str) -> dict[str, list[Mutation]]:
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\n    ", " ")
    sections = re.findall(r"^\[(.+)\]\n((?:.+\n)+)", lines, re.MULTILINE)
    return {name: [Mutation.parse(line) for line in section.splitlines()] for name, section in sections}


MUTATIONS = _parse(Path(__file__).with_name("mutations.txt").read_text(encoding="utf-8"))
COMPONENTS, SHARED_GPUS, SENTINELS, REDIS_CLUSTER = "components", "shared GPUs", "sentinels", "Redis Cluster"
"""Sections of other manifests than those that are committed; all other sections are named after a check."""

OF_BASE = [
    (check, each)
    for check, section in MUTATIONS.items()
    if check not in (COMPONENTS, SHARED_GPUS, SENTINELS, REDIS_CLUSTER)
    for each in section
]
