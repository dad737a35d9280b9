"""Which connections are closed because their clients do not read their answers: too slowly, or too many bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.settings_groups import UnsentLimits
from api.tenants import ShareHolder

T = TypeVar("T")


@dataclass(slots=True)
class _Unsent(Generic[T]):
    """What a connection has not sent.

    Attributes:
        share: of the client that it counts for.
        num_bytes: of memory, which is free once all of them are sent.
        num_left: bytes that its client had not received when it was last looked at.
        stalled_since_s: when bytes were last found to have been received, or when these were written.
    """

    share: _Share[T]
    num_bytes: int
    num_left: int
    stalled_since_s: float


class _Share(Generic[T]):
    """The unsent bytes of one client, and its connections that have any, in the order of the table.

    Its weight is that of its first connection: several keys of one tenant may have several.
    """

    __slots__ = ("connections", "holder", "num_bytes")

    def __init__(self, holder: ShareHolder) -> None:
        self.holder, self.num_bytes = holder, 0
        self.connections: dict[T, None] = {}


class UnsentTable(Generic[T]):
    """The connections with unsent bytes, those first whose clients have received nothing for the longest.

    If all together have too many bytes, the client with the most bytes for its weight makes room. So a
    client that reads as slowly as is allowed, on many connections, closes its own ones, not those of others.

    All times are those of one monotonic clock, in s.

    Attributes:
        num_bytes: of memory, of all connections.
    """

    def __init__(self, limits: UnsentLimits) -> None:
        self._limits = limits
        self._unsent: dict[T, _Unsent[T]] = {}
        self._shares: dict[str, _Share[T]] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._unsent)

    def __iter__(self) -> Iterator[T]:
        return iter(self._unsent)

    def has_room(self, num_bytes: int) -> bool:
        """Whether all connections together may have this many further bytes."""
        return self.num_bytes + num_bytes <= self._limits.max_bytes

    def add(self, connection: T, holder: ShareHolder, num_bytes: int, num_left: int, now_s: float) -> bool:
        """Bytes were written of which not all are sent; `num_left` are unsent, with those from before.

        `holder` is the client that they count for, together with those that are unsent from before.

        Returns whether the connection is within its maximum; if not, it is removed, and has to be closed.
        """
        unsent = self._unsent.get(connection)
        if unsent is None:
            share = self._shares.setdefault(holder.name, _Share(holder))
            share.connections[connection] = None
            unsent = self._unsent[connection] = _Unsent(share, 0, num_left, now_s)
        unsent.num_bytes += num_bytes
        unsent.num_left = num_left
        unsent.share.num_bytes += num_bytes
        self.num_bytes += num_bytes
        if unsent.num_bytes <= self._limits.max_per_connection:
            return True
        self.remove(connection)
        return False

    def update(self, connection: T, num_left: int, now_s: float) -> None:
        """The connection has been looked at: its client has not received `num_left` bytes."""
        unsent = self._unsent[connection]
        if num_left < unsent.num_left:
            unsent.stalled_since_s = now_s
            self._unsent[connection] = self._unsent.pop(connection)  # behind those that stalled before
            unsent.share.connections[connection] = unsent.share.connections.pop(connection)
        unsent.num_left = num_left

    def remove(self, connection: T) -> None:
        """All bytes of the connection are sent, or it is closed. Does nothing if it has none."""
        unsent = self._unsent.pop(connection, None)
        if unsent is None:
            return
        self.num_bytes -= unsent.num_bytes
        unsent.share.num_bytes -= unsent.num_bytes
        del unsent.share.connections[connection]
        if not unsent.share.connections:
            del self._shares[unsent.share.holder.name]

    def take_excess(self) -> list[T]:
        """Removes the connections to close until the others are within the maximum of all, and returns them.

        Each is the one of the client with the most bytes for its weight that has received nothing for the longest. The
        last one stays, whose bytes may be more than the maximum.
        """
        excess = []
        while not self.has_room(0) and len(self._unsent) > 1:
            largest = max(self._shares.values(), key=lambda each: each.num_bytes / each.holder.weight)
            excess.append(next(iter(largest.connections)))
            self.remove(excess[-1])
        return excess

    def take_overdue(self, now_s: float) -> list[T]:
        """Removes the connections whose clients have received nothing in the maximum time, and returns them."""
        overdue = []
        for connection, unsent in self._unsent.items():
            if unsent.stalled_since_s + self._limits.timeout_s > now_s:
                break
            overdue.append(connection)
        for connection in overdue:
            self.remove(connection)
        return overdue
