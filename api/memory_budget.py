"""Bounds the bytes that requests hold, in all and of each tenant. Pure.

A gateway has two such budgets: of bodies that are received, and of inputs and results of the requests in flight.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Self

from api.tenants import ANONYMOUS, Tenant, find_refusal
from shared.messages import Failure, Input, Reply, Vectors

SMALL_BYTES, RESERVED_PARTS = 64 * 2**10, 8
"""One part of this many is for requests that hold up to SMALL_BYTES: large ones do not take all memory from these.

To join and parse a larger body may take tens of milliseconds. Such bodies are parsed one at a time; after each, other
work gets as much time as the parsing took.
"""

TENANT_SHARE = 0.8
"""The part of the memory that a single tenant of weight 1 may hold: see `find_refusal`."""

INPUT_COPIES = 2
"""Each input is in memory as the client sent it, and in its entry until it is answered."""


class MemoryBudget:
    """Bounds the bytes that all requests of a gateway hold.

    Args:
        max_bytes: of all of them.

    Attributes:
        num_bytes: that are held now.
        of_tenants: the same, by tenant, of those that have a name.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.of_tenants: Counter[str] = Counter()


class HeldMemory:
    """What one request holds of a budget, until the end of a `with` block or `release`.

    Args:
        budget: of the gateway.
        tenant: of the request. Several divide the budget by weight; clients without a name have no share.
    """

    __slots__ = ("_budget", "_num_bytes", "_tenant")

    def __init__(self, budget: MemoryBudget, tenant: Tenant = ANONYMOUS) -> None:
        self._budget, self._tenant = budget, tenant
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def release(self, *_: object) -> None:
        """Releases all bytes."""
        self._budget.num_bytes -= self._num_bytes
        if self._tenant is not ANONYMOUS:
            of_tenants, name = self._budget.of_tenants, self._tenant.name
            of_tenants[name] -= self._num_bytes
            if not of_tenants[name]:
                del of_tenants[name]
        self._num_bytes = 0

    __exit__ = release

    def resize(self, num_bytes: int) -> bool:
        """Reserves bytes in place of those that it holds; returns False, and holds none, if there are too few."""
        self.release()
        return self.grow(num_bytes)

    def grow(self, by: int) -> bool:
        """Reserves bytes; returns False, and reserves none, if there are too few.

        A request that is the only one gets all that it needs: otherwise one larger than the budget would never be
        answered, and other bounds hold for a single one.
        """
        after, max_bytes = self._num_bytes + by, self._budget.max_bytes
        others = self._budget.num_bytes - self._num_bytes
        if after > SMALL_BYTES:
            max_bytes -= max_bytes // RESERVED_PARTS
        if others and (others + after > max_bytes or self._exceeds_share(by)):
            return False
        self._num_bytes += by
        self._budget.num_bytes += by
        if self._tenant is not ANONYMOUS:
            self._budget.of_tenants[self._tenant.name] += by
        return True

    def _exceeds_share(self, by: int) -> bool:
        budget, tenant = self._budget, self._tenant
        if tenant is ANONYMOUS:
            return False
        held, total = budget.of_tenants[tenant.name] + by, budget.num_bytes + by
        return find_refusal(held, total, budget.max_bytes, tenant.quota.weight, TENANT_SHARE) is not None


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
