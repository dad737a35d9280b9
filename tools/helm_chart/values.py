"""What a value of the chart is, and where it stands in objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """A field that a value sets, or the part of a text.

    Attributes:
        path: kind and name of the object, then the names of fields, separated by spaces. An item of a list has its
            `name`, if names are unique in the list, or its number. `*` stands for anything.
        pattern: the value is the group of this regular expression. "" if it is the whole field.
    """

    path: str
    pattern: str = ""

    def matches(self, path: str) -> bool:
        """Whether this is the path of a field."""
        return fnmatchcase(path, self.path)

    def adds_to(self, path: str) -> str:
        """Returns the name of the field that it adds to the object at this path; "" if it adds none."""
        parent, _, field = self.path.rpartition(" ")
        return field if not self.pattern and fnmatchcase(path, parent) else ""


@dataclass(frozen=True)
class Value:
    """A value of the chart, or (without a name) an expression that the chart computes.

    Attributes:
        name: with dots, as --set of Helm takes it.
        text: its description.
        schema: its JSON schema, without null.
        places: where it stands.
        optional: its default is null, for which the field stays as kustomize renders it.
        code: an expression in Helm's language, instead of the value itself.
        read: computes the default from what kustomize renders.
    """

    name: str
    text: str
    schema: Schema
    places: tuple[Place, ...]
    optional: bool = False
    code: str = ""
    read: Callable[[Any], Any] | None = None

    @property
    def expression(self) -> str:
        """It in Helm's language."""
        return self.code or f".Values.{self.name}"

    def may_be_in(self, identity: str) -> bool:
        """Whether it stands in an object of this kind and name."""
        return any(fnmatchcase(identity, each.path.partition(" ")[0]) for each in self.places)

    def place_of(self, path: str, *, with_pattern: bool) -> Place | None:
        """Returns its place at a path, as a whole field or as part of a text. None if it has none."""
        matching = (each for each in self.places if bool(each.pattern) is with_pattern and each.matches(path))
        return next(matching, None)


def spans(values: tuple[Value, ...], path: str, text: str) -> list[tuple[int, int, Value]]:
    """Returns the parts of a text that values set, in order: begin, end, value."""
    found = []
    for value in values:
        place = value.place_of(path, with_pattern=True)
        if place is not None:
            found += [(*match.span(1), value) for match in re.finditer(place.pattern, text)]
    return sorted(found, key=lambda each: each[0])
