"""Finds integers of more than 64 bits in JSON, which orjson reads as floats: a function would get others. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

RoundedIntegers = Callable[[], frozenset[str]]
"""Returns what `find_rounded_integers` finds in a document; called for few, as that takes as long as parsing it."""

_STRING_OR_LONG = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\d.eE+-])(-?\d{19,})(?![\d.eE])')
_LARGE_FLOAT = re.compile(r"-?\d[\d.]*e\+\d+")


def find_rounded_integers(document: bytes) -> frozenset[str]:
    """Returns the integers of valid JSON that have more than 64 bits, as orjson encodes the floats that it reads."""
    integers = filter(None, _STRING_OR_LONG.findall(document))
    values = orjson.loads(b"[%b]" % b",".join(integers))
    return frozenset(orjson.dumps(each).decode() for each in values if isinstance(each, float))


def has_rounded_integer(encoded: str, rounded: RoundedIntegers) -> bool:
    """Returns whether a value, as orjson has encoded it again, has one of the integers that its document has."""
    return "e+" in encoded and not rounded().isdisjoint(_LARGE_FLOAT.findall(encoded))
