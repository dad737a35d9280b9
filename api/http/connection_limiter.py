"""Closes connections: those too many for the limits, and those whose head does not come in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from ipaddress import ip_address, ip_network

from api import metrics
from api.http.connection_table import ConnectionTable, Place, address_group
from api.settings_groups import ConnectionLimits
from shared.process.limited_log import LimitedLog

EVICTED, REFUSED, HEAD_TIMEOUT, PIPELINED = "evicted", "refused", "head_timeout", "pipelined"
"""Why a connection was closed: for another one; because none could be closed for it; its head did not come in time; it
brought too many requests before an answer.
"""

limited_log = LimitedLog()


class ConnectionLimiter:
    """The open connections of a gateway, within their limits.

    Args:
        limits: of the connections.
        proxies: networks of the proxies, as sockets report them: their connections are those of many clients.

    Attributes:
        table: of the connections; each reports to it when a head or a request begins and ends.
    """

    def __init__(self, limits: ConnectionLimits, proxies: Iterable[str]) -> None:
        self.table: ConnectionTable[asyncio.Transport] = ConnectionTable(limits)
        self._proxies = [ip_network(each) for each in proxies]
        self._free_head: dict[Place[asyncio.Transport], Callable[[], None]] = {}
        """Of each connection, until it is closed: held by its place, it would make a reference cycle."""
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, transport: asyncio.Transport, host: str, free_head: Callable[[], None]) -> Place[asyncio.Transport]:
        """Returns the place of a new connection from an address. It or another one may be closed for that.

        `free_head` is called when heads of other connections need the room of its heads.
        """
        loop = asyncio.get_running_loop()
        is_proxy = bool(host and self._proxies) and any(ip_address(host) in network for network in self._proxies)
        client = host if is_proxy else address_group(host)  # whose network may have clients, too, with another maximum
        admission = self.table.admit(transport, client, loop.time(), is_proxy=is_proxy)
        if admission.closed is not None:
            abort_connection(admission.closed, EVICTED)
        if not admission.place.is_open:
            abort_connection(transport, REFUSED)
        self._free_head[admission.place] = free_head
        self._set_timer(loop)
        metrics.CONNECTIONS.set(len(self.table))
        return admission.place

    def update_head(
        self, place: Place[asyncio.Transport], num_bytes: int, *, request_bytes: int = 0, is_complete: bool = False
    ) -> bool:
        """The unfinished head of a connection has a number of bytes; returns False if it has to be refused.

        Heads of other connections may be refused to make room. `request_bytes`: of its requests that are not answered;
        `is_complete`: the head is not unfinished any more, and its request begins.
        """
        loop = asyncio.get_running_loop()
        excess = self.table.update_head(
            place, num_bytes, loop.time(), request_bytes=request_bytes, is_complete=is_complete
        )
        for each in excess:
            if each is not place:
                self._free_head[each]()
        self._set_timer(loop)
        return place not in excess

    def start_linger(self, place: Place[asyncio.Transport]) -> None:
        """The answer of a connection is written, and the rest of its request's body is dropped."""
        for each in self.table.start_linger(place):
            self._free_head[each]()

    def expect_head(self, place: Place[asyncio.Transport]) -> None:
        """What has yet to arrive of an answered request, and the next head, must come in time."""
        loop = asyncio.get_running_loop()
        self.table.expect_head(place, loop.time())
        self._set_timer(loop)

    def remove(self, place: Place[asyncio.Transport]) -> None:
        """The connection is closed."""
        self.table.remove(place)
        self._free_head.pop(place, None)
        metrics.CONNECTIONS.set(len(self.table))

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        deadline_s = self.table.next_deadline_s
        if self._timer is None and deadline_s is not None:
            self._timer = loop.call_at(deadline_s, self._close_overdue, loop)

    def _close_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for transport in self.table.take_overdue(loop.time()):
            abort_connection(transport, HEAD_TIMEOUT)
        self._set_timer(loop)


def abort_connection(transport: asyncio.Transport, reason: str) -> None:
    """Closes a connection at once, logs and counts it: what its client does not read would keep the descriptor open."""
    metrics.CLOSED_CONNECTIONS.labels(reason).inc()
    client = transport.get_extra_info("peername")
    details = {"client": client[0] if client else ""}
    limited_log.write(logging.INFO, "connection closed", lambda: details, reason=reason)
    transport.abort()
