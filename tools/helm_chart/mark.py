"""Puts the values of the chart into objects of kustomize, and finds their defaults there."""

from __future__ import annotations

import re

from tools.helm_chart.kustomize import Manifest
from tools.helm_chart.nodes import ABSENT, Expression, Node, Slot, Text
from tools.helm_chart.values import Value, spans

HASH = re.compile(r"-[2456789bcdfghkmt]{10}$")
"""What kustomize appends to the name of a ConfigMap: it depends on the content."""


class DefaultError(ValueError):
    """A value of the chart has no default in k8s/, or several ones."""


def identity(manifest: Manifest) -> str:
    """Returns kind and name of an object, without a hash."""
    name = manifest["metadata"]["name"]
    return f"{manifest['kind']}/{HASH.sub('', name) if manifest['kind'] == 'ConfigMap' else name}"


class Marker:
    """Marks objects, and remembers what they have where values stand.

    Attributes:
        found: by name of a value: what kustomize renders there.
    """

    def __init__(self, values: tuple[Value, ...]) -> None:
        """Takes the values of the chart."""
        self._values = values
        self.found: dict[str, list[Node]] = {}

    def mark(self, manifest: Manifest) -> Node:
        """Returns an object with values in it."""
        name = identity(manifest)
        return self._walk(manifest, name, tuple(each for each in self._values if each.may_be_in(name)))

    def default(self, value: Value) -> Node:
        """Returns what kustomize renders where a value stands. Raises DefaultError: nothing, or not the same."""
        found = self.found.get(value.name, [])
        if not found or any(each != found[0] for each in found):
            raise DefaultError(f"{value.name} must have one default in k8s/, and has {found}: correct its places")
        return found[0]

    def _walk(self, node: Node, path: str, values: tuple[Value, ...]) -> Node:
        for value in values:
            if value.place_of(path, with_pattern=False) is not None:
                self._remember(value, node)
                return Slot(value.expression, value.optional, node if value.optional else None)
        if isinstance(node, dict):
            fields = {key: self._walk(each, f"{path} {key}", values) for key, each in node.items()}
            return fields | self._additions(node, path, values)
        if isinstance(node, list):
            pairs = zip(_labels(node), node, strict=True)
            return [self._walk(each, f"{path} {label}", values) for label, each in pairs]
        return self._text(node, path, values) if isinstance(node, str) else node

    def _additions(self, node: dict[str, Node], path: str, values: tuple[Value, ...]) -> dict[str, Slot]:
        """Optional fields that kustomize does not render."""
        added = {}
        for value in values:
            for place in value.places if value.optional else ():
                field = place.adds_to(path)
                if field and field not in node:
                    self._remember(value, None)
                    added[field] = Slot(value.expression, optional=True, literal=ABSENT)
        return added

    def _text(self, text: str, path: str, values: tuple[Value, ...]) -> str | Text:
        parts: list[str | Expression] = []
        end = 0
        for begin, until, value in spans(values, path, text):
            self._remember(value, text[begin:until])
            parts += [text[end:begin], Expression(value.expression)]
            end = until
        return Text(tuple(each for each in (*parts, text[end:]) if each)) if parts else text

    def _remember(self, value: Value, node: Node) -> None:
        self.found.setdefault(value.name, []).append(value.read(node) if value.read else node)


def _labels(items: list[Node]) -> list[str]:
    names = [each.get("name") if isinstance(each, dict) else None for each in items]
    if None in names or len({*names}) < len(names):
        return [str(number) for number in range(len(items))]
    return [str(name) for name in names]
