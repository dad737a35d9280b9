"""The order of measurements in each round. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Round:
    """One of `total` rounds; `number` counts from 0."""

    number: int
    total: int

    def rotate(self, items: Sequence[ItemT]) -> list[ItemT]:
        """Returns the items in the order of this round.

        Over all rounds the first place rotates once through the items, so that no item is always early or always late.
        """
        start = self.number * len(items) // self.total
        return [*items[start:], *items[:start]]
