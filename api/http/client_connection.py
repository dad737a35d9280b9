"""The client's side of a connection: its address, whether it is there and reads, and a task to cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from starlette.types import Scope

    from api.http.coalescing_transport import CoalescingTransport

CLIENT = "client"
"""Key in the `state` of a request's scope: its ClientConnection."""


class ClientConnection:
    """The client's side of a connection.

    Attributes:
        gone: True once the client has closed the connection.
        start_linger: called when an answer is written while the rest of its request still arrives: from then on, the
            connection may be closed for another one.
        transport: of the connection, while it is open.
        task: answers the request; set by the protocol, as to ask asyncio for the current task takes longer.
    """

    def __init__(self) -> None:
        self.gone = False
        self.start_linger: Callable[[], None] = lambda: None
        self.transport: CoalescingTransport | None = None
        self.task: asyncio.Task[Any] | None = None
        self._watching: asyncio.Task[Any] | None = None
        self._left = asyncio.Event()

    def watch(self) -> None:
        """Until `unwatch`, cancels the task of the request when the client leaves."""
        self._watching = self.task

    def unwatch(self) -> None:
        """Stops watching: the task is not cancelled any more."""
        self._watching = None

    def abort(self) -> None:
        """Closes the connection at once, in the middle of an answer that cannot be completed."""
        if self.transport is not None:
            self.transport.abort()

    async def wait_until_sent(self) -> None:
        """Waits until everything written is sent, or the connection is closed."""
        if self.transport is not None:
            await self.transport.drain()

    async def wait_until_gone(self) -> None:
        """Waits until the connection is closed."""
        await self._left.wait()

    def check(self) -> None:
        """Raises ClientDisconnect: the client has left, so its request need not be answered."""
        if self.gone:
            raise ClientDisconnect

    def leave(self) -> None:
        """Marks the client as gone and cancels the task that watches it."""
        self.gone, self.transport = True, None
        self._left.set()
        if self._watching is not None:
            self._watching.cancel()


def client_address(scope: Scope) -> str:
    """Returns the IP address of the client, as a trusted proxy reports it; "" if there is none."""
    client = scope.get("client")
    return client[0] if client else ""
