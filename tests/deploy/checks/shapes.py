"""What a tree of YAML may look like: the keys that it has and no others, and what each of them may be.

Schemas take whatever Kubernetes can do, and things that an API server refuses. Here is what is used of it: a new key is
a decision. A shape is one of these:

- a mapping: has these keys and no others; without those that end in `?` it may be;
- a list of one shape: each element has it;
- a tuple of shapes: so many elements, each of the shape in its place;
- `By`: a list as a mapping, by a key of its elements;
- a set: one of these; a pattern: a text that matches in full; `Holds`: what holds of it; anything else: itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Shape = Any
UNITS = {"": 1, "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


@dataclass(frozen=True)
class Holds:
    """A value of which something holds."""

    what: str
    of: Callable[[Any], bool]


@dataclass(frozen=True)
class By:
    """A list whose elements have each another value of a key, as a mapping from it to the rest of them."""

    key: str
    shape: dict[str, Shape]


ANY = Holds("anything", lambda _: True)
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def between(least: int, most: int) -> Holds:
    """Returns a number that is not less, and not more."""
    return Holds(f"{least} to {most}", lambda it: type(it) is int and least <= it <= most)


def quantity(least: str, most: str, units: str = "KMGTi") -> Holds:
    """Returns a quantity that is not less, and not more. Of bytes there are no thousandths, which `m` would be."""

    def holds(it: object) -> bool:
        found = QUANTITY.fullmatch(str(it))
        fits = found is not None and set(found[2] or "") <= set(units)
        return fits and amount(least) <= amount(str(it)) <= amount(most)

    return Holds(f"{least} to {most}", holds)


def cores(least: str, most: str) -> Holds:
    """Returns a quantity of cores."""
    return quantity(least, most, "m")


def amount(quantity: str | int) -> float:
    """Returns a quantity as a number: bytes, or cores."""
    number, unit = QUANTITY.fullmatch(str(quantity)).groups()  # type: ignore[union-attr]  # shapes look at them
    return float(number) * UNITS[unit or ""]


BEHAVIOR = {
    "scaleUp": {"stabilizationWindowSeconds": between(0, 60), "policies": ANY, "selectPolicy?": "Max"},
    "scaleDown": {"stabilizationWindowSeconds": between(300, 3600), "policies": ANY},
}
"""Of autoscalers: at once when there is more to do, and much later when there is less."""


def misfits(value: object, shape: Shape, where: str) -> Iterator[str]:
    """Yields where a value is not of a shape."""
    if isinstance(shape, dict):
        yield from _mapping(value, shape, where)
    elif isinstance(shape, By):
        yield from _mapping(_by(value, shape.key), shape.shape, where)
    elif isinstance(shape, list | tuple):
        yield from _list(value, shape, where)
    elif not _is(value, shape):
        yield f"{where}: {value!r} is not {shape.what if isinstance(shape, Holds) else _text(shape)}"


def _is(value: object, shape: Shape) -> bool:
    if isinstance(shape, Holds):
        try:
            return shape.of(value)
        except (TypeError, ValueError, AttributeError):  # it is of another kind
            return False
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if isinstance(shape, set):
        return isinstance(value, str | int) and value in shape
    return type(value) is type(shape) and bool(value == shape)


def _text(shape: Shape) -> str:
    return shape.pattern if isinstance(shape, re.Pattern) else repr(shape)


def _mapping(value: object, shape: dict[str, Shape], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no mapping"
        return
    shapes = {key.removesuffix("?"): inner for key, inner in shape.items()}
    yield from (f"{where}: {key} is not expected" for key in value if key not in shapes)
    yield from (f"{where}: no {key}" for key in shape if not key.endswith("?") and key not in value)
    for key, inner in shapes.items():
        if key in value:
            yield from misfits(value[key], inner, f"{where}.{key}")


def _by(value: object, key: str) -> object:
    if not isinstance(value, list) or not all(isinstance(each, dict) and key in each for each in value):
        return value
    return {str(each[key]): {name: it for name, it in each.items() if name != key} for each in value}


def _list(value: object, shape: list[Shape] | tuple[Shape, ...], where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: {value!r} is no list"
        return
    shapes = shape * len(value) if isinstance(shape, list) else list(shape)
    if len(shapes) != len(value):
        yield f"{where}: {len(value)} of them, not {len(shapes)}"
    for place, (each, inner) in enumerate(zip(value, shapes, strict=False)):
        yield from misfits(each, inner, f"{where}.{place}")


def twice(tree: object, where: str) -> Iterator[str]:
    """Yields where two elements of a list have one name, of which an API server takes none, or the last."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from twice(value, f"{where}.{key}")
    elif isinstance(tree, list):
        named = [each for each in tree if isinstance(each, dict)]
        for key in ("parameter", "mountPath", "name"):  # what mounts, or parameters, are known by is not their name
            if named and all(key in each for each in named):
                many = Counter(str(each[key]) for each in named)
                yield from (f"{where}: {name} is there twice" for name, count in many.items() if count > 1)
                break
        for place, each in enumerate(tree):
            yield from twice(each, f"{where}.{place}")
