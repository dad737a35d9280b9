"""The HTTP protocol of a connection: that of uvicorn, with bounds, fewer writes, and notice of departures."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from httptools import HttpParserError, HttpParserUpgrade, parse_url
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api.http.client_connection import CLIENT, ClientConnection
from api.http.coalescing_transport import CoalescingTransport
from api.http.connection_limiter import PIPELINED, abort_connection
from api.http.connection_table import SMALL_HEAD_BYTES
from api.http.early_error import log_fault
from api.http.head_refusal import HeadRefusal
from api.http.probes_only import ProbesOnlyApp
from api.http.unanswered_requests import UnansweredRequests
from shared.errors import HeadTooLargeError, InvalidRequestError, RequestError, UrlTooLongError
from shared.process.limited_log import LimitedLog

if TYPE_CHECKING:
    from api.http.connection_limiter import ConnectionLimiter
    from api.http.connection_table import Place
    from api.http.unsent_limiter import UnsentLimiter
    from api.settings_groups import HeadLimits

BODY_COMPLETE, QUEUE = "body_complete", "queue"
"""Keys in the `state` of a request's scope: True if its body arrived with its head; the name of its queue, set once
that is known.
"""

MAX_PIPELINED = 8
"""Maximum requests that wait behind the one that is being answered; one read may bring thousands. Usual clients send
the next request after the answer.
"""

FIELD_BYTES = 200
"""Approximate memory of a header field beside its bytes."""

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
        probe_paths: what is served on a connection beyond the limits.
        kwargs: uvicorn's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - uvicorn's
        head_limits: HeadLimits,
        limiter: ConnectionLimiter,
        unsent: UnsentLimiter,
        probe_paths: frozenset[str],
        **kwargs: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self.logger = ERRORS_ONLY
        self._limits = head_limits
        self._head_bytes = 0  # received since a head or a message was complete, or since the last part of a body
        self._in_head = False  # of a request, of which a part has arrived
        self._behind_bytes = 0  # at most this much of that head came in the read in which a message was complete
        self._unanswered = UnansweredRequests()
        self._head_error: RequestError | None = None
        self._in_body, self._num_trailer_fields = False, 0  # between the head of a request and the end of its body
        self._is_ending = False  # once what has arrived is no request, and an answer is due before the end
        self._previous: RequestResponseCycle | None = None  # of the request before, while a body arrives
        self._refusal: HeadRefusal | None = None
        self._limiter, self._unsent, self._probe_paths = limiter, unsent, probe_paths
        self._place: Place[asyncio.Transport]
        self._client, self._is_answer_unsent = ClientConnection(), False
        self._transport: CoalescingTransport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused while anything is unsent
        self._transport = CoalescingTransport(transport, self.loop, self.flow, self._unsent, self._unanswered)
        self.transport = self._transport  # type: ignore[assignment]
        self._client.transport = self._transport
        self._place = self._limiter.admit(transport, self.client[0] if self.client else "")
        self._client.give_way = partial(self._limiter.table.give_way, self._place)
        if self._place.is_spare:
            self.app = ProbesOnlyApp(self.app, self._probe_paths)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection, or the connection is lost."""
        if self._transport is not None:
            self._transport.lose()
        self._limiter.remove(self._place)
        self._unsent.remove(self._place.owner)
        super().connection_lost(exc)
        self._unanswered.disconnect()
        self._client.leave()
        for cycle, _ in self.pipeline:
            cycle.on_response = lambda: None  # it never begins; a reference to this connection would make a cycle
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived. Those of an unfinished head are counted, whatever the parser has made of them."""
        if self._is_ending:
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._limits.max_bytes:
            self._head_bytes -= len(data)
            self._receive_in_pieces(data)
        else:
            self._parse(data)
            self._count_rest(len(data))
        if not self._has_room():
            self._refuse(_no_room())

    def _count_rest(self, num_bytes: int) -> None:
        """Counts a head that began in the last `num_bytes`, behind a message: only the parser knows where."""
        if self._in_head and not self._head_bytes:
            self._behind_bytes = num_bytes

    def _has_room(self) -> bool:
        """Counts all heads in memory; returns False if they have to be refused, which is done once."""
        num_bytes = self._unanswered.num_bytes + self._behind_bytes + self._head_bytes
        if num_bytes == self._place.head_bytes or self._refusal is not None or self.transport.is_closing():
            return True
        return self._limiter.update_head(self._place, num_bytes)

    def _receive_in_pieces(self, data: bytes) -> None:
        """Parses up to the maximum of a head at a time, since only the parser knows whether it is one or a body."""
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            room = self._limits.max_bytes - self._head_bytes
            if self._refusal is not None:
                self._refusal.drop(len(rest))
                return
            if room <= 0:
                message = f"The head of a request may have at most {self._limits.max_bytes} bytes (max_head_bytes)."
                self._refuse(HeadTooLargeError(message))
                continue
            piece, rest = rest[:room], rest[room:]
            self._head_bytes += len(piece)
            self._parse(piece)
            self._count_rest(len(piece))

    def _parse(self, data: bytes | memoryview) -> None:
        """Does what uvicorn's `data_received` does, but serves a request for another protocol in this one.

        The parser takes its head for the end of HTTP: what follows would be lost, or a body be read as a request. So
        the head is parsed again without the field Upgrade, which a server may ignore (RFC 9110, 7.8).
        """
        self._unset_keepalive_if_required()
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + bytes(data[upgrade.args[0] :])
            except HttpParserError as error:
                log_fault(error)
                self.send_400_response("Invalid HTTP request received.")
                return
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        """Returns the head that has arrived, as far as it matters: without Upgrade, and with names in lower case."""
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        fields = [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([first, *fields, b"", b""])

    def _refuse(self, error: RequestError) -> None:
        """Refuses a head and closes the connection; without an answer if that would seem to be another request's."""
        self._head_bytes = self._limits.max_bytes  # so that what follows is dropped
        if self._in_body or not self._has_answered_all:
            self.transport.close()
        else:
            self._refusal = HeadRefusal(self.transport, error, self.client[0] if self.client else "")
            self.parser = self.scope = None  # type: ignore[assignment]  # as uvicorn does: they hold parts of the head
            self.url, self.headers = b"", []
            self._limiter.update_head(self._place, 0)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP, or a head over its limits, and logs it."""
        if self._head_error is not None:
            self._refuse(self._head_error.with_traceback(None))  # whose frames refer to this connection: a cycle
            return
        details = {"message": msg, "client": self.client[0] if self.client else ""}
        limited_log.write(logging.INFO, "request refused", lambda: details, status=400, code="invalid_http")
        if self._in_body and self.pipeline:  # its turn never comes
            self.pipeline.popleft()
            self._unanswered.remove_last()
            self._in_body, self.cycle = False, self._previous  # type: ignore[assignment]  # never None then
        if self.cycle.response_started if self._in_body else not self._has_answered_all:
            self._is_ending = True
            self.shutdown()  # after the answer that is due: the client would take this one for it
        else:
            super().send_400_response(msg)

    @property
    def _has_answered_all(self) -> bool:
        """Whether all requests whose heads have arrived are answered."""
        cycle: RequestResponseCycle | None = self.cycle  # the last one's; None before the first
        return cycle is None or cycle.response_complete

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._unset_keepalive_if_required()  # set if the end of a body came in the same read
        self._in_body, self._num_trailer_fields = False, 0
        super().on_message_begin()
        self.scope["state"][CLIENT] = self._client

    def on_url(self, url: bytes) -> None:
        """A part of the URL has arrived."""
        super().on_url(url)
        if len(self.url) > self._limits.max_url_bytes:
            error = UrlTooLongError(f"A URL may have at most {self._limits.max_url_bytes} bytes (max_url_bytes).")
            self._stop_parsing(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field has arrived. Does what uvicorn's does: a call of that for each field takes as long as both."""
        if len(self.headers) + self._num_trailer_fields >= self._limits.max_fields:
            message = f"A request may have at most {self._limits.max_fields} header fields (max_head_fields)."
            self._stop_parsing(HeadTooLargeError(message))
        if self._in_body:  # fields of a trailer are no headers (RFC 9110, 6.5.1): nothing here reads them
            self._num_trailer_fields += 1
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head has arrived. It counts until its request is answered."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise InvalidRequestError("CONNECT: there is no tunnel here.")  # like all that is not HTTP
            return  # see _parse
        if self.url[:1] != b"/" and parse_url(self.url).path is None:
            raise InvalidRequestError("The URL has no path.")
        if len(self.pipeline) >= MAX_PIPELINED:
            abort_connection(self.transport, PIPELINED)
            self._stop_parsing(RequestError("Too many requests before an answer."))
        is_large = self._behind_bytes + self._head_bytes > SMALL_HEAD_BYTES
        num_bytes = self._num_head_bytes() if is_large or self._place.is_busy else 0
        self._in_head, self._behind_bytes, self._head_bytes = False, 0, 0
        self._unanswered.add_head(num_bytes)
        if num_bytes and not self._limiter.update_head(self._place, self._unanswered.num_bytes):
            self._stop_parsing(_no_room())
        self._previous = self.cycle
        super().on_headers_complete()
        self._unanswered.add_cycle(self.cycle)
        self._in_body = True
        self._limiter.table.start_request(self._place)

    def _num_head_bytes(self) -> int:
        """Returns the size of the head that has arrived, without its separators; a body may have come with it.

        Behind another request, with what its fields take in memory.
        """
        field_bytes = FIELD_BYTES if self._place.is_busy else 0
        return len(self.url) + sum(len(name) + len(value) + field_bytes for name, value in self.headers)

    def _stop_parsing(self, error: RequestError) -> NoReturn:
        """Stops the parser, which then calls send_400_response."""
        self._head_error = error
        raise error

    def on_body(self, body: bytes) -> None:
        """A part of a body has arrived."""
        self._head_bytes = 0
        if self.pipeline:  # nothing else bounds it until its turn comes
            self._unanswered.add_body(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has arrived with its body. Reading goes on, because only a read shows that the client has left.

        But while one request is being answered, nothing is read after the read that completes a third one, so that a
        client cannot fill the memory: that read may bring MAX_PIPELINED.
        """
        if not self._in_body:  # see _parse
            return
        self._head_bytes, self._in_body, self._previous = 0, False, None
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before its body came: now the connection is idle
            self._limiter.table.drop_deadline(self._place)
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self.scope["state"][BODY_COMPLETE] = True
        if len(self.pipeline) <= 1:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is written. Nothing is read until it is sent, and no request begins that has been read before."""
        if self._transport is not None:
            self._transport.flush()
        self._unanswered.remove_first()
        if self.cycle.response_complete:
            self._release()
        if self.flow.write_paused:
            self._is_answer_unsent = True
            self.flow.pause_reading()
            self._limiter.table.end_request(self._place)  # so that it may be closed for another connection
        else:
            self._complete_response()

    def resume_writing(self) -> None:
        """Everything that was written is sent."""
        super().resume_writing()
        self._unsent.remove(self._place.owner)
        if self._is_answer_unsent:
            self._is_answer_unsent = False
            self._limiter.table.start_request(self._place)  # of which one that waits behind the answer may begin
            self._complete_response()

    def _complete_response(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._limiter.table.end_request(self._place)
            if self._in_head or self._head_bytes or self.cycle.more_body:
                self._limiter.expect_head(self._place)
        self._has_room()  # there is: fewer heads are in memory

    def _release(self) -> None:
        """Releases what is in memory of the last request, which would stay there while the connection is idle."""
        self.cycle.scope, self.cycle.body = None, bytearray()  # type: ignore[assignment]  # it is used no more
        if not self._in_head:
            self.scope, self.headers, self.url = None, [], b""  # type: ignore[assignment]  # until the next one begins


def _no_room() -> HeadTooLargeError:
    return HeadTooLargeError("The heads of all requests together are too large (max_heads_bytes).")
