"""Which connections are closed because their clients do not read their answers: too slowly, or too many bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.settings_groups import UnsentLimits

T = TypeVar("T")


@dataclass(slots=True)
class _Unsent:
    """What a connection has not sent.

    Attributes:
        num_bytes: of memory, which is free once all of them are sent.
        num_left: bytes that its client had not received when it was last looked at.
        stalled_since_s: when bytes were last found to have been received, or when these were written.
    """

    num_bytes: int
    num_left: int
    stalled_since_s: float


class UnsentTable(Generic[T]):
    """The connections with unsent bytes, those first whose clients have received nothing for the longest.

    All times are those of one monotonic clock, in s.

    Attributes:
        num_bytes: of memory, of all connections.
    """

    def __init__(self, limits: UnsentLimits) -> None:
        self._limits = limits
        self._unsent: dict[T, _Unsent] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._unsent)

    def __iter__(self) -> Iterator[T]:
        return iter(self._unsent)

    def has_room(self, num_bytes: int) -> bool:
        """Whether all connections together may have this many further bytes."""
        return self.num_bytes + num_bytes <= self._limits.max_bytes

    def add(self, connection: T, num_bytes: int, num_left: int, now_s: float) -> bool:
        """Bytes were written of which not all are sent; `num_left` are unsent, with those from before.

        Returns whether the connection is within its maximum; if not, it is removed, and has to be closed.
        """
        unsent = self._unsent.setdefault(connection, _Unsent(0, num_left, now_s))
        unsent.num_bytes += num_bytes
        unsent.num_left = num_left
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
        unsent.num_left = num_left

    def remove(self, connection: T) -> None:
        """All bytes of the connection are sent, or it is closed. Does nothing if it has none."""
        unsent = self._unsent.pop(connection, None)
        if unsent is not None:
            self.num_bytes -= unsent.num_bytes

    def take_excess(self) -> list[T]:
        """Removes the connections to close until the others are within the maximum of all, and returns them.

        The last one stays, whose bytes may be more than that.
        """
        excess = []
        while not self.has_room(0) and len(self._unsent) > 1:
            excess.append(next(iter(self._unsent)))
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
