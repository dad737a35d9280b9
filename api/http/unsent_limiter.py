"""Closes connections whose clients do not read their answers."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from typing import TYPE_CHECKING

from api import metrics
from api.http.connection_limiter import abort_connection
from api.http.share_holder import holder_of_address, share_holder_of
from api.http.unsent_table import UnsentTable
from api.settings_groups import UnsentLimits
from api.tenants import ShareHolder

if TYPE_CHECKING:
    from starlette.types import Scope

SEND_TIMEOUT, UNSENT_BYTES = "send_timeout", "unsent_bytes"
"""Why a connection was closed: its client received nothing for too long; it, or all, had too many unsent bytes."""

LOOKS_PER_TIMEOUT = 8
"""How often each connection is looked at in that time, which therefore is exact to a quarter."""

MIN_LOOK_INTERVAL_S = 0.1
"""While there are too many bytes, connections are looked at this often, since a look at thousands takes 10 ms."""

_INT = bytes(4)
_NO_LINGER = struct.pack("ii", 1, 0)


class UnsentLimiter:
    """The unsent bytes of all connections of a gateway, within their limits.

    Its timer runs, and a connection costs time, only while any has unsent bytes.

    Args:
        limits: of the unsent bytes.
    """

    def __init__(self, limits: UnsentLimits) -> None:
        self._table: UnsentTable[asyncio.Transport] = UnsentTable(limits)
        self._interval_s = limits.timeout_s / LOOKS_PER_TIMEOUT
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at_s = 0.0

    def add(self, transport: asyncio.Transport, scope: Scope | None, num_bytes: int) -> None:
        """Bytes were written to a connection, of which not all are sent. It or others may be closed for that.

        `scope` is that of the request that they answer; None if they answer none.
        """
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if not self._table.has_room(num_bytes) and now_s - self._looked_at_s >= MIN_LOOK_INTERVAL_S:
            self._look(now_s)
        holder = _holder_of_peer(transport) if scope is None else share_holder_of(scope)
        if not self._table.add(transport, holder, num_bytes, _num_left(transport), now_s):
            _reset(transport, UNSENT_BYTES)
        for each in self._table.take_excess():
            _reset(each, UNSENT_BYTES)
        metrics.UNSENT_BYTES.set(self._table.num_bytes)
        self._set_timer(loop)

    def remove(self, transport: asyncio.Transport) -> None:
        """All bytes of the connection are sent, or it is closed."""
        self._table.remove(transport)
        metrics.UNSENT_BYTES.set(self._table.num_bytes)

    def _look(self, now_s: float) -> None:
        self._looked_at_s = now_s
        for each in list(self._table):
            self._table.update(each, _num_left(each), now_s)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and len(self._table):
            self._timer = loop.call_later(self._interval_s, self._close_overdue, loop)

    def _close_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._look(loop.time())
        for each in self._table.take_overdue(loop.time()):
            _reset(each, SEND_TIMEOUT)
        metrics.UNSENT_BYTES.set(self._table.num_bytes)
        self._set_timer(loop)


def _holder_of_peer(transport: asyncio.Transport) -> ShareHolder:
    peer = transport.get_extra_info("peername")
    return holder_of_address(peer[0] if peer else "")


def _num_left(transport: asyncio.Transport) -> int:
    """Returns the bytes that the client's machine has not acknowledged, with those in the kernel's buffer.

    That buffer may hold megabytes, and takes more only once a third of it is free. Without those in it, a client that
    reads steadily would seem to stand still in between.
    """
    file = transport.get_extra_info("socket").fileno()
    in_kernel = int.from_bytes(fcntl.ioctl(file, termios.TIOCOUTQ, _INT), sys.byteorder)
    return transport.get_write_buffer_size() + in_kernel


def _reset(transport: asyncio.Transport, reason: str) -> None:
    """Closes a connection with a reset: otherwise the kernel would keep for minutes what it has not sent, either."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    abort_connection(transport, reason)
