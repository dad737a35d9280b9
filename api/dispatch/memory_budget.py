"""The memory of the requests in flight: their inputs, and the results that have arrived. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Self

from shared.messages import Failure, Input, Reply, Vectors

SMALL_BYTES, RESERVED_PARTS = 64 * 2**10, 8
"""One part of this many is for requests that hold up to SMALL_BYTES: large ones do not take all memory from these."""

INPUT_COPIES = 2
"""Each input is in memory as the client sent it, and in its entry until it is answered."""


class MemoryBudget:
    """Bounds the bytes of inputs and results that all requests in flight hold in a gateway.

    Args:
        max_bytes: of all of them.

    Attributes:
        num_bytes: that are held now.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0


class HeldMemory:
    """What one request holds of a budget during a `with` block: from its parsed inputs to its encoded answer."""

    __slots__ = ("_budget", "_num_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.num_bytes -= self._num_bytes

    def grow(self, by: int) -> bool:
        """Reserves bytes; returns False, and reserves none, if there are too few.

        A request that is the only one gets all that it needs: otherwise one larger than the budget would never be
        answered, and other bounds hold for a single one.
        """
        after, max_bytes = self._num_bytes + by, self._budget.max_bytes
        others = self._budget.num_bytes - self._num_bytes
        if after > SMALL_BYTES:
            max_bytes -= max_bytes // RESERVED_PARTS
        if others and others + after > max_bytes:
            return False
        self._num_bytes += by
        self._budget.num_bytes += by
        return True


def unbounded() -> HeldMemory:
    """Returns the memory of a request that counts against no budget."""
    return HeldMemory(MemoryBudget(sys.maxsize))


def size_of_inputs(inputs: Sequence[Input]) -> int:
    """Returns the bytes that the inputs of a request take in memory until it is answered."""
    return INPUT_COPIES * sum(map(sys.getsizeof, inputs))


def size_of_reply(reply: Reply) -> int:
    """Returns the bytes of a reply's results."""
    if isinstance(reply, Vectors):
        return len(reply.data)
    return 0 if isinstance(reply, Failure) else sum(map(len, reply.values))
