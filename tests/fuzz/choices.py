"""Decisions that are read from random bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads decisions from bytes; once these are used up, and wherever they are 0, each decision is the first one.

    So Hypothesis can make a case small: it sets bytes to 0. To have Hypothesis draw each decision takes ten times as
    long as to read it here, and longer than a gateway takes for the case.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def below(self, number: int) -> int:
        """Returns a number from 0 to below `number`, which is at most 65,536."""
        size = 1 if number <= 256 else 2
        value = int.from_bytes(self.take(size).ljust(size, b"\0"))
        return value * number >> 8 * size

    def take(self, size: int) -> bytes:
        """Returns the next bytes, or fewer if there are no more."""
        self._position += size
        return self._data[self._position - size : self._position]

    def pick(self, options: Sequence[T]) -> T:
        """Returns one of the options."""
        return options[self.below(len(options))]

    def one_in(self, number: int) -> bool:
        """Whether to do something that happens once in a number of times."""
        return self.below(number) == number - 1
