"""What a template has besides plain objects: values of the chart, and conditions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, TypeAlias

Node: TypeAlias = Any
"""An object or a field of one, in which those of this module may stand."""


class Absent(enum.Enum):
    """That an object, field or item is not there in some scenarios."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


@dataclass(frozen=True)
class Slot:
    """A whole field that a value of the chart sets.

    Attributes:
        expression: of Helm's language, such as `.Values.redis.maxmemory`.
        optional: if the value is null, the field is `literal`, or not there.
        literal: what kustomize renders. None if the value is not optional: then it is the value's default.
    """

    expression: str
    optional: bool = False
    literal: Node = None


@dataclass(frozen=True)
class Expression:
    """Part of a text that a value of the chart sets."""

    code: str


@dataclass(frozen=True)
class Text:
    """A text of which values of the chart set parts."""

    parts: tuple[str | Expression, ...]


@dataclass(frozen=True)
class Branch:
    """What a field is for these values of a flag."""

    values: tuple[str | bool, ...]
    node: Node


@dataclass(frozen=True)
class Choice:
    """A field that depends on a flag. A branch may be ABSENT."""

    flag: str
    branches: tuple[Branch, ...]
