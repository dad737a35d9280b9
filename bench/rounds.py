"""Who goes first in which round. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Round:
    """One of `of` rounds, counted from 0."""

    number: int
    of: int

    def turns(self, items: Sequence[ItemT]) -> list[ItemT]:
        """Returns the items in the order of this round.

        Over all rounds the first place goes once around, so that none is always early, or always late.
        """
        start = self.number * len(items) // self.of
        return [*items[start:], *items[:start]]
