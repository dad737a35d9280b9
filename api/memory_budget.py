"""Bounds the bytes that requests hold, in all and of each tenant or address. Pure.

A gateway has two such budgets: of bodies that are received, and of inputs and results of the requests in flight.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Self

from api.tenants import ShareHolder, find_refusal
from shared.messages import Failure, Input, Reply, Vectors

SMALL_BYTES, RESERVED_PARTS = 64 * 2**10, 8
"""One part of this many is for requests that hold up to SMALL_BYTES: large ones do not take all memory from these.

To join and parse a larger body may take tens of milliseconds. Such bodies are parsed one at a time; after each, other
work gets as much time as the parsing took.
"""

HOLDER_SHARE = 0.8
"""The part of the memory that a single holder of weight 1 may hold: see `find_refusal`."""

INPUT_COPIES = 2
"""Each input is in memory as the client sent it, and in its entry until it is answered."""


class MemoryBudget:
    """Bounds the bytes that all requests of a gateway hold.

    Args:
        max_bytes: of all of them.

    Attributes:
        num_bytes: that are held now.
        of_holders: the same, by the name of the holder.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.of_holders: dict[str, int] = {}


class HeldMemory:
    """What one request holds of a budget, until the end of a `with` block or `release`.

    Args:
        budget: of the gateway.
        holder: whose share it is. Several divide the budget by weight.
    """

    __slots__ = ("_budget", "_holder", "_num_bytes")

    def __init__(self, budget: MemoryBudget, holder: ShareHolder) -> None:
        self._budget, self._holder = budget, holder
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    @property
    def num_bytes(self) -> int:
        """The bytes that it holds."""
        return self._num_bytes

    def release(self, *_: object) -> None:
        """Releases all bytes."""
        self.shrink(0)

    __exit__ = release

    def shrink(self, num_bytes: int) -> None:
        """Releases all bytes but these."""
        budget, name, released = self._budget, self._holder.name, self._num_bytes - num_bytes
        budget.num_bytes -= released
        left = budget.of_holders.pop(name, 0) - released
        if left:
            budget.of_holders[name] = left
        self._num_bytes = num_bytes

    def resize(self, num_bytes: int) -> bool:
        """Reserves bytes in place of those that it holds; returns False, and holds none, if there are too few."""
        self.release()
        return self.grow(num_bytes)

    def grow(self, by: int) -> bool:
        """Reserves bytes; returns False, and reserves none, if there are too few.

        A request that is the only one gets all that it needs: otherwise one larger than the budget would never be
        answered, and other bounds hold for a single one.
        """
        budget, (name, weight) = self._budget, self._holder
        after, total = self._num_bytes + by, budget.num_bytes + by
        held, free = budget.of_holders.get(name, 0) + by, budget.max_bytes - total
        # the usual case costs no call: with this much free, neither rule refuses
        is_scarce = total > free or total > weight * free
        if is_scarce and total > after and self._is_refused(after, held, total):
            return False
        self._num_bytes, budget.num_bytes, budget.of_holders[name] = after, total, held
        return True

    def _is_refused(self, after: int, held: int, total: int) -> bool:
        max_bytes = self._budget.max_bytes
        if after > SMALL_BYTES and total > max_bytes - max_bytes // RESERVED_PARTS:
            return True
        return find_refusal(held, total, max_bytes, self._holder.weight, HOLDER_SHARE) is not None


def unbounded() -> HeldMemory:
    """Returns the memory of a request that counts against no budget."""
    return HeldMemory(MemoryBudget(sys.maxsize), ShareHolder(""))


def size_of_inputs(inputs: Sequence[Input]) -> int:
    """Returns the bytes that the inputs of a request take in memory until it is answered."""
    return INPUT_COPIES * sum(map(sys.getsizeof, inputs))


def size_of_reply(reply: Reply) -> int:
    """Returns the bytes of a reply's results."""
    if isinstance(reply, Vectors):
        return len(reply.data)
    return 0 if isinstance(reply, Failure) else sum(map(len, reply.values))
