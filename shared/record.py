"""A record of named fields, for values that each request creates. Pure."""

from __future__ import annotations

from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace


class Record(Struct, frozen=True):
    """A value of named fields that cannot change. Unlike a named tuple it is no tuple: it has no order and no places.

    For values that each request or each input creates: it takes a third of the time of a named tuple's. Others, and
    those that are taken apart into variables, are named tuples.
    """

    def _replace(self, **changes: Any) -> Self:  # noqa: ANN401 - of any field
        """Returns a copy with other values of some fields. Raises TypeError: there is no such field."""
        return replace(self, **changes)
