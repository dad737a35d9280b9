"""The HTTP protocol of a connection: uvicorn's, with detection of clients that leave, and with fewer writes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.client_connection import CLIENT, ClientConnection
from shared.process.limited_log import LimitedLog

BODY_COMPLETE, QUEUE = "body_complete", "queue"
"""Keys in the `state` of a request's scope: True if its body arrived with its head; the name of its queue, set once
that is known.
"""

limited_log = LimitedLog()

ERRORS_ONLY = logging.getLogger("uvicorn.error.connection")
"""uvicorn's logger of connections: any client can cause its warnings."""

ERRORS_ONLY.setLevel(logging.ERROR)


class GatewayProtocol(HttpToolsProtocol):
    """Reads requests and writes answers, the head and the body of an answer in one write.

    Each request can find out, without a separate task, whether its client has left and whether its body has arrived.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's parameters
        super().__init__(*args, **kwargs)
        self.logger = ERRORS_ONLY
        self._client = ClientConnection()
        self._transport: CoalescingTransport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.transport = self._transport = CoalescingTransport(transport, self.loop)  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection, or the connection is lost."""
        if self._transport is not None:
            self._transport.lose()
        super().connection_lost(exc)
        self._client.leave()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP, and logs it."""
        details = {"message": msg, "client": self.client[0] if self.client else ""}
        limited_log.write(logging.INFO, "request refused", lambda: details, status=400, code="invalid_http")
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][CLIENT] = self._client

    def on_message_complete(self) -> None:
        """A request has arrived with its body. Reading goes on, because only a read shows that the client has left.

        But at most one more request is read while one is being answered, so that a client cannot fill the memory.
        """
        super().on_message_complete()
        self.scope["state"][BODY_COMPLETE] = True
        if len(self.pipeline) <= 1:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is written."""
        if self._transport is not None:
            self._transport.flush()
        super().on_response_complete()


class CoalescingTransport:
    """A transport that joins writes until `flush`, or until the end of this iteration of the event loop.

    uvloop's transport writes immediately: an answer then takes two system calls, two packets, and two reads by the
    client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._lost = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes are the transport's
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes the data at the next flush."""
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)

    def flush(self) -> None:
        """Writes all pending data now."""
        if self._pending:
            pending, self._pending = self._pending, []
            if not self._lost:
                self._transport.writelines(pending)

    def close(self) -> None:
        """Writes all pending data, then closes."""
        self.flush()
        self._transport.close()

    def lose(self) -> None:
        """Drops all further writes: no client reads them, and the transport would raise an error."""
        self._lost = True
