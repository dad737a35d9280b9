"""The HTTP protocol of a connection: that of uvicorn, with bounds, fewer writes, and notice of departures."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api.http.client_connection import CLIENT, ClientConnection
from api.http.head_refusal import HeadRefusal
from api.http.probes_only import ProbesOnlyApp
from shared.errors import HeadTooLargeError, RequestError, UrlTooLongError
from shared.process.limited_log import LimitedLog

if TYPE_CHECKING:
    from uvicorn.protocols.http.flow_control import FlowControl

    from api.http.connection_limiter import ConnectionLimiter
    from api.http.connection_table import Place
    from api.http.unsent_limiter import UnsentLimiter
    from api.settings_groups import HeadLimits

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
    A request begins once the answer to the one before it is sent, so that a client cannot fill the memory with answers.

    Args:
        args: uvicorn's.
        head_limits: of each request; the trailer of a chunked body has the same bounds, its fields together with those
            of the head.
        limiter: of the connections of all clients.
        unsent: bounds the unsent bytes of the connections of all clients.
        kwargs: uvicorn's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - uvicorn's
        head_limits: HeadLimits,
        limiter: ConnectionLimiter,
        unsent: UnsentLimiter,
        **kwargs: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self.logger = ERRORS_ONLY
        self._max_head_bytes, self._max_fields = head_limits.max_bytes, head_limits.max_fields
        self._max_url_bytes = head_limits.max_url_bytes
        self._head_bytes = 0  # received since the last part of a body, or since a message was complete
        self._head_error: RequestError | None = None
        self._refusal: HeadRefusal | None = None
        self._limiter, self._unsent = limiter, unsent
        self._place: Place[asyncio.Transport]
        self._client = ClientConnection()
        self._transport: CoalescingTransport | None = None
        self._is_answer_unsent = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused while anything is unsent
        self._transport = CoalescingTransport(transport, self.loop, self.flow, self._unsent)
        self.transport = self._transport  # type: ignore[assignment]
        self._client.transport = self._transport
        self._place = self._limiter.admit(transport, self.client[0] if self.client else "")
        if self._place.is_spare:
            self.app = ProbesOnlyApp(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection, or the connection is lost."""
        if self._transport is not None:
            self._transport.lose()
        self._limiter.remove(self._place)
        self._unsent.remove(self._place.owner)
        super().connection_lost(exc)
        self._client.leave()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived. Those of an unfinished head are counted, whatever the parser has made of them."""
        self._head_bytes += len(data)
        if self._head_bytes > self._max_head_bytes:
            self._head_bytes -= len(data)
            self._receive_in_pieces(data)
        else:
            super().data_received(data)
        if self._head_bytes != self._place.head_bytes and self._refusal is None:
            has_room = self._limiter.update_head(self._place, self._head_bytes)
            if not has_room:
                self._refuse(HeadTooLargeError("All unfinished heads together are too large (max_heads_bytes)."))

    def _receive_in_pieces(self, data: bytes) -> None:
        """Parses up to the maximum of a head at a time, since only the parser knows whether it is one or a body."""
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            room = self._max_head_bytes - self._head_bytes
            if self._refusal is not None:
                self._refusal.drop(len(rest))
                return
            if room <= 0:
                message = f"The head of a request may have at most {self._max_head_bytes} bytes (max_head_bytes)."
                self._refuse(HeadTooLargeError(message))
                continue
            piece, rest = rest[:room], rest[room:]
            self._head_bytes += len(piece)
            super().data_received(piece)  # type: ignore[arg-type]  # the parser takes any buffer

    def _refuse(self, error: RequestError) -> None:
        """Refuses a head and closes the connection; without an answer if that to another request is due before."""
        self._head_bytes = self._max_head_bytes  # so that what follows is dropped
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self.transport.close()
        else:
            self._refusal = HeadRefusal(self.transport, error, self.client[0] if self.client else "")
            self.parser = None  # type: ignore[assignment]  # as uvicorn does: it holds a part of the head
            self.scope = None  # type: ignore[assignment]  # the same
            self.url, self.headers = b"", []
            self._limiter.update_head(self._place, 0)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP, or a head over its limits, and logs it."""
        if self._head_error is not None:
            self._refuse(self._head_error.with_traceback(None))  # whose frames refer to this connection: a cycle
            return
        details = {"message": msg, "client": self.client[0] if self.client else ""}
        limited_log.write(logging.INFO, "request refused", lambda: details, status=400, code="invalid_http")
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][CLIENT] = self._client

    def on_url(self, url: bytes) -> None:
        """A part of the URL has arrived."""
        super().on_url(url)
        if len(self.url) > self._max_url_bytes:
            self._head_error = UrlTooLongError(f"A URL may have at most {self._max_url_bytes} bytes (max_url_bytes).")
            raise self._head_error

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field has arrived. Does what uvicorn's does: a call of that for each field takes as long as both."""
        if len(self.headers) >= self._max_fields:
            message = f"A request may have at most {self._max_fields} header fields (max_head_fields)."
            self._head_error = HeadTooLargeError(message)
            raise self._head_error
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head has arrived."""
        super().on_headers_complete()
        self._limiter.table.start_request(self._place)

    def on_body(self, body: bytes) -> None:
        """A part of a body has arrived."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has arrived with its body. Reading goes on, because only a read shows that the client has left.

        But at most one more request is read while one is being answered, so that a client cannot fill the memory.
        """
        self._head_bytes = 0
        super().on_message_complete()
        self.scope["state"][BODY_COMPLETE] = True
        if len(self.pipeline) <= 1:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is written. Nothing is read until it is sent, and no request begins that has been read before."""
        if self._transport is not None:
            self._transport.flush()
        if self.flow.write_paused:
            self._is_answer_unsent = True
            self.flow.pause_reading()
        else:
            self._complete_response()

    def resume_writing(self) -> None:
        """Everything that was written is sent."""
        super().resume_writing()
        self._unsent.remove(self._place.owner)
        if self._is_answer_unsent:
            self._is_answer_unsent = False
            self._complete_response()

    def _complete_response(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._limiter.table.end_request(self._place)
            if self._head_bytes or self.cycle.more_body:
                self._limiter.expect_head(self._place)


class CoalescingTransport:
    """A transport that joins writes until `flush`, or until the end of this iteration of the event loop.

    uvloop's transport writes immediately: an answer then takes two system calls, two packets, and two reads by the
    client.

    Args:
        transport: takes the joined writes; it pauses writing while anything is unsent.
        loop: the event loop.
        flow: whether writing is paused.
        unsent: gets the number of bytes of each write of which not all are sent at once.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, flow: FlowControl, unsent: UnsentLimiter
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._flow, self._unsent = flow, unsent
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
                if self._flow.write_paused:
                    self._unsent.add(self._transport, sum(map(len, pending)))

    async def drain(self) -> None:
        """Writes all pending data, and waits until it is sent or the connection is lost."""
        self.flush()
        await self._flow.drain()

    def close(self) -> None:
        """Writes all pending data, then closes."""
        self.flush()
        self._transport.close()

    def lose(self) -> None:
        """Drops all further writes: no client reads them, and the transport would raise an error."""
        self._lost = True
