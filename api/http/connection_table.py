"""Which connections may be open, and which are closed: those too many, and those whose head does not come. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Generic, TypeVar

from api.settings_groups import ConnectionLimits

T = TypeVar("T")

MAX_SPARES = 16
"""Maximum connections beyond the limits: a probe that comes while all others have requests is answered on one."""

SMALL_HEAD_BYTES = 4 * 2**10
"""A connection with heads up to this size does not count: usual heads are smaller, and many are in memory at once."""

DESCRIPTOR_RATIO = 0.75
"""Fraction of the open files that may be connections of clients; Redis, logs and the admin port need the others."""

IPV6_GROUP_BITS = 64
"""Length of the prefix that one client of IPv6 usually has for itself."""


def max_connections_of(max_connections: int, max_files: int) -> int:
    """Returns the maximum of connections in a process that may have `max_files` open files."""
    return max(1, min(max_connections, int(max_files * DESCRIPTOR_RATIO)))


def address_group(host: str) -> str:
    """Returns what counts as one client: an address of IPv4, or a /64 network of IPv6."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or IPv6Network((int(address), IPV6_GROUP_BITS), strict=False))


def _counted_bytes(head_bytes: int) -> int:
    return head_bytes if head_bytes > SMALL_HEAD_BYTES else 0


class _Group(Generic[T]):
    """The connections of one client: their number, and those that wait for a head, the oldest first.

    Of the latter, those with large heads are in `heads`, with the bytes of these, and `heads_bytes` is their sum.
    """

    __slots__ = ("heads", "heads_bytes", "max_open", "name", "num_open", "waiting")

    def __init__(self, name: str, max_open: int) -> None:
        self.name, self.max_open = name, max_open
        self.num_open = self.heads_bytes = 0
        self.waiting: dict[Place[T], None] = {}
        self.heads: dict[Place[T], int] = {}


@dataclass(eq=False, slots=True)
class Place(Generic[T]):
    """The place of one connection in the table.

    Attributes:
        owner: the connection, of which the table knows nothing.
        group: the client that it counts for.
        is_spare: whether it is one of MAX_SPARES, which count nowhere.
        is_busy: whether a request is being answered; a busy connection is closed for no other one, unless it lingers.
        head_bytes: of its heads in memory: one that is unfinished, and those of requests that are not answered.
        unfinished_bytes: those of the former.
        is_open: False if it was refused, and once it is removed from the table.
    """

    owner: T
    group: _Group[T]
    is_spare: bool
    is_busy: bool = False
    head_bytes: int = 0
    unfinished_bytes: int = 0
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Admission(Generic[T]):
    """The place of a new connection, and a connection to close for it, if there is one."""

    place: Place[T]
    closed: T | None


class ConnectionTable(Generic[T]):
    """All open connections, and which of them wait for a head.

    A connection waits from its start to the head of its first request, and from an answer to the next head; also while
    it lingers, which is to drop the rest of a body after the answer. Among those that wait, the oldest is closed first.
    All times are those of one monotonic clock, in s.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._num_open = self._heads_bytes = self._unfinished_heads_bytes = 0
        self._groups: dict[str, _Group[T]] = {}
        self._waiting: dict[Place[T], None] = {}
        self._spares: dict[Place[T], None] = {}
        self._head_groups: dict[_Group[T], None] = {}
        self._heads: dict[Place[T], float] = {}
        """Heads that must arrive, and until when, the earliest first, since all have the same time."""

    def __len__(self) -> int:
        return self._num_open + len(self._spares)

    @property
    def next_deadline_s(self) -> float | None:
        """When the next head must have arrived; None while no head is due."""
        return next(iter(self._heads.values()), None)

    def admit(self, owner: T, client: str, now_s: float, *, is_proxy: bool = False) -> Admission[T]:
        """Returns whether a connection of a client may stay, and the connection that is closed in its place.

        If its client has its maximum of connections, the client's oldest waiting one is closed; if all clients together
        have theirs, the oldest waiting one of all. If none waits, the new one takes a spare place. `is_proxy`: the
        connections of many clients, which are bounded in all only.
        """
        closed = self._take_oldest(client, is_proxy=is_proxy)
        group = self._group(client, is_proxy=is_proxy)
        is_spare = self._is_full(group)
        if is_spare and len(self._spares) >= MAX_SPARES:
            closed = next((each for each in self._spares if not each.is_busy), None)
            if closed is None:
                return Admission(Place(owner, group, is_spare, is_open=False), None)
            self.remove(closed)
        place = Place(owner, group, is_spare)
        if is_spare:
            self._spares[place] = None
        else:
            self._groups[client] = group
            group.num_open += 1
            self._num_open += 1
            self._waiting[place] = group.waiting[place] = None
        self.expect_head(place, now_s)
        return Admission(place, None if closed is None else closed.owner)

    def update_head(
        self, place: Place[T], num_bytes: int, now_s: float, *, request_bytes: int = 0, is_complete: bool = False
    ) -> list[Place[T]]:
        """The unfinished head of a connection has grown to a number of bytes, or fewer are in memory; 0: none.

        It must be complete in time. `request_bytes` are those of requests that are not answered. If all large heads
        together take too much, or those of waiting connections, the client with the most bytes of the latter makes
        room: its oldest large head is refused. But what comes before an answer, or finds no such client, is refused
        itself. `is_complete`: the request of the head begins now.

        Returns the places of the connections whose heads are to be refused, which count no more.
        """
        if not place.is_open:
            return []
        self._set_head(place, num_bytes, request_bytes)
        if num_bytes:
            self.expect_head(place, now_s)
        return self._make_room(place, is_complete=is_complete, takes_others=not place.is_busy)

    def start_request(self, place: Place[T]) -> None:
        """A head has arrived: until `start_linger` or `end_request`, the connection is not closed."""
        place.is_busy, place.unfinished_bytes = True, 0
        self._heads.pop(place, None)
        self._waiting.pop(place, None)
        place.group.waiting.pop(place, None)
        if place.head_bytes:
            self._list_head(place)

    def start_linger(self, place: Place[T]) -> list[Place[T]]:
        """The answer is written, and the rest of the body is dropped: the connection may be closed for another one.

        Its head is in memory until then. Returns the places of the connections whose heads are to be refused.
        """
        self._wait(place)
        return self._make_room(place, is_complete=False, takes_others=True)

    def end_request(self, place: Place[T]) -> None:
        """The request is answered: the connection waits for the next one. Of that, `update_head` has to follow."""
        place.is_busy = False
        self._wait(place)

    def expect_head(self, place: Place[T], now_s: float) -> None:
        """From now on, the next head must arrive in time. Does nothing if it must already, or during a request."""
        if not place.is_busy and place.is_open and place not in self._heads:
            self._heads[place] = now_s + self._limits.head_timeout_s

    def drop_deadline(self, place: Place[T]) -> None:
        """Nothing has to arrive: the connection is idle."""
        self._heads.pop(place, None)

    def remove(self, place: Place[T]) -> None:
        """The connection is closed. Removing it twice does nothing."""
        if not place.is_open:
            return
        place.is_open = False
        self._set_head(place, 0, 0)
        self._heads.pop(place, None)
        if place.is_spare:
            del self._spares[place]
            return
        self._waiting.pop(place, None)
        place.group.waiting.pop(place, None)
        self._num_open -= 1
        place.group.num_open -= 1
        if not place.group.num_open:
            del self._groups[place.group.name]

    def take_overdue(self, now_s: float) -> list[T]:
        """Removes the connections whose head has not arrived in time, and returns them."""
        overdue = []
        for place, deadline_s in self._heads.items():
            if deadline_s > now_s:
                break
            overdue.append(place)
        for place in overdue:
            self.remove(place)
        return [place.owner for place in overdue]

    def _wait(self, place: Place[T]) -> None:
        if place.is_open and not place.is_spare:
            self._waiting[place] = place.group.waiting[place] = None
            if place.head_bytes:
                self._list_head(place)

    def _make_room(self, place: Place[T], *, is_complete: bool, takes_others: bool) -> list[Place[T]]:
        excess = []
        while place.head_bytes > SMALL_HEAD_BYTES and self._are_heads_too_large(is_complete=is_complete):
            refused = (self._oldest_head() if takes_others else None) or place
            freed_bytes = refused.group.heads.get(refused, refused.head_bytes)
            self._set_head(refused, 0, refused.head_bytes - freed_bytes)
            excess.append(refused)
        return excess

    def _are_heads_too_large(self, *, is_complete: bool) -> bool:
        limits = self._limits
        are_unfinished_too_large = self._unfinished_heads_bytes > limits.max_unfinished_heads_bytes
        return self._heads_bytes > limits.max_heads_bytes or (are_unfinished_too_large and not is_complete)

    def _set_head(self, place: Place[T], unfinished_bytes: int, request_bytes: int) -> None:
        num_bytes = unfinished_bytes + request_bytes
        self._heads_bytes += _counted_bytes(num_bytes) - _counted_bytes(place.head_bytes)
        place.head_bytes, place.unfinished_bytes = num_bytes, unfinished_bytes
        self._list_head(place)

    def _list_head(self, place: Place[T]) -> None:
        """Adds a connection to those that can make room for heads, or removes it.

        If it lingers, all it holds makes room; otherwise its unfinished head, and requests behind an answer stay.
        """
        can_free = place.head_bytes if place.is_busy else place.unfinished_bytes
        group, num_bytes = place.group, _counted_bytes(can_free) if place in self._waiting else 0
        growth = num_bytes - group.heads.get(place, 0)
        group.heads_bytes += growth
        self._unfinished_heads_bytes += growth
        if num_bytes:
            group.heads[place] = num_bytes
            self._head_groups[group] = None
        elif group.heads.pop(place, 0) and not group.heads:
            del self._head_groups[group]

    def _oldest_head(self) -> Place[T] | None:
        """Returns the connection with the oldest large head, of the client with the most bytes of these."""
        group = max(self._head_groups, key=lambda each: each.heads_bytes, default=None)
        return None if group is None else next(iter(group.heads))

    def _group(self, client: str, *, is_proxy: bool) -> _Group[T]:
        limits = self._limits
        max_open = limits.max_connections if is_proxy else limits.max_per_address
        return self._groups.get(client) or _Group(client, max_open)

    def _is_full(self, group: _Group[T]) -> bool:
        return group.num_open >= group.max_open or self._num_open >= self._limits.max_connections

    def _take_oldest(self, client: str, *, is_proxy: bool) -> Place[T] | None:
        """Removes the connection that gives way to a new one of a client; None if none must, or none waits."""
        group = self._group(client, is_proxy=is_proxy)
        if not self._is_full(group):
            return None
        waiting = group.waiting if group.num_open >= group.max_open else self._waiting
        oldest = next(iter(waiting), None)
        if oldest is not None:
            self.remove(oldest)
        return oldest
