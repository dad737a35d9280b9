"""The HTTP side of a connection: uvicorn's own, with what it leaves out."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PEER, WHOLE, QUEUE = "peer", "whole", "queue"
"""What a request finds in its scope's `state`: the Peer, and True if its body had arrived with its head.

And once that is known, the name of the queue that it is for."""


class Peer:
    """The other end of a connection. `gone` says that it has left."""

    def __init__(self) -> None:
        self.gone = False
        self._waits: asyncio.Task[Any] | None = None

    def watch(self) -> None:
        """Has the current task cancelled when it leaves, until `unwatch`."""
        self._waits = asyncio.current_task()

    def unwatch(self) -> None:
        """Lets the task be."""
        self._waits = None

    def leave(self) -> None:
        """It has left."""
        self.gone = True
        if self._waits is not None:
            self._waits.cancel()


class Connection(HttpToolsProtocol):
    """Reads requests and writes answers, an answer's head and body in one write.

    Requests learn without a task of their own that their client has left, and which of them need not wait for a body.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as uvicorn has them
        super().__init__(*args, **kwargs)
        self._peer = Peer()
        self._outlet: Outlet | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.transport = self._outlet = Outlet(transport, self.loop)  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left, or the connection is closed."""
        if self._outlet is not None:
            self._outlet.lose()
        super().connection_lost(exc)
        self._peer.leave()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][PEER] = self._peer

    def on_message_complete(self) -> None:
        """A request is here, with its body; reading goes on, or nobody would see that its client has left.

        But no more than one request waits for the one that is at work: a client cannot fill the memory with them.
        """
        super().on_message_complete()
        self.scope["state"][WHOLE] = True
        if len(self.pipeline) <= 1:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is written."""
        if self._outlet is not None:
            self._outlet.flush()
        super().on_response_complete()


class Outlet:
    """A transport whose writes wait for each other until `flush`, or the end of this turn of the event loop.

    uvloop's own writes at once, which for an answer is two system calls, two packets, and two reads of the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._lost = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the transport's
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes soon."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)

    def flush(self) -> None:
        """Writes now what waits."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if not self._lost:
                self._transport.writelines(waiting)

    def close(self) -> None:
        """Closes when all is written."""
        self.flush()
        self._transport.close()

    def lose(self) -> None:
        """Writes nothing more: there is nobody to read it, and the transport would raise an error."""
        self._lost = True
