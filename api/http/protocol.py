"""The HTTP protocol of a connection: that of uvicorn, with bounds, fewer writes, and notice of departures."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from api.http.client_connection import CLIENT, ClientConnection
from api.http.coalescing_transport import CoalescingTransport
from api.http.connection_limiter import EVICTED, PIPELINED, abort_connection
from api.http.connection_table import SMALL_HEAD_BYTES
from api.http.early_error import INVALID_HTTP, early_error, log_invalid
from api.http.head_refusal import HeadRefusal
from api.http.parsing_protocol import ParsingProtocol
from api.http.probes_only import ProbesOnlyApp
from api.http.unanswered_requests import UnansweredRequests
from shared.errors import RedbatchError, RequestError, TooManyHeadsError

if TYPE_CHECKING:
    from api.http.connection_limiter import ConnectionLimiter
    from api.http.connection_table import Place
    from api.http.unsent_limiter import UnsentLimiter

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

ERRORS_ONLY = logging.getLogger("uvicorn.error.connection")
"""uvicorn's logger of connections: any client can cause its warnings."""

ERRORS_ONLY.setLevel(logging.ERROR)


class GatewayProtocol(ParsingProtocol):
    """Reads requests and writes answers, the head and the body of an answer in one write.

    Each request can find out, without a separate task, whether its client has left and whether its body has arrived.
    A request begins once the answer to the one before it is sent, so that a client cannot fill the memory with answers.

    Args:
        args: uvicorn's.
        limiter: of the connections of all clients.
        unsent: bounds the unsent bytes of the connections of all clients.
        probe_paths: what is served on a connection beyond the limits.
        kwargs: those of ParsingProtocol, and uvicorn's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - uvicorn's
        limiter: ConnectionLimiter,
        unsent: UnsentLimiter,
        probe_paths: frozenset[str],
        **kwargs: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self.logger = ERRORS_ONLY
        self._limiter, self._unsent, self._probe_paths = limiter, unsent, probe_paths
        self._unanswered = UnansweredRequests()
        self._client, self._is_answer_unsent = ClientConnection(), False
        self._place: Place[asyncio.Transport]
        self._transport: CoalescingTransport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused while anything is unsent
        self._transport = CoalescingTransport(transport, self.loop, self.flow, self._unsent)
        self.transport = self._transport  # type: ignore[assignment]
        self._client.transport = self._transport
        self._place = self._limiter.admit(transport, self._address, self._free_head)
        self._client.start_linger = partial(self._limiter.start_linger, self._place)
        if self._place.is_spare:
            self.app = ProbesOnlyApp(self.app, self._probe_paths)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection, or the connection is lost."""
        self._transport.drop_writes()
        self._limiter.remove(self._place)
        self._unsent.remove(self._place.owner)
        super().connection_lost(exc)
        self._unanswered.disconnect()
        self._client.leave()
        if self._refusal is not None:
            self._refusal.cancel()
        for cycle, _ in self.pipeline:
            cycle.on_response = lambda: None  # it never begins; a reference to this connection would make a cycle
        self.pipeline.clear()

    @property
    def _address(self) -> str:
        """The client's address; "" if it has none."""
        return self.client[0] if self.client else ""

    def count_heads(self) -> None:
        """Counts the heads in memory, and what waits behind a request, unless they are as large as before."""
        num_bytes = self._unanswered.num_bytes + self._behind_bytes + self._head_bytes
        if num_bytes != self._place.head_bytes and not self.transport.is_closing():
            self._claim_room(num_bytes)

    def _claim_room(self, num_bytes: int) -> None:
        if not self._limiter.update_head(self._place, num_bytes):
            self.end_reading(_no_room())

    def _free_head(self) -> None:
        """The heads of other connections need the room of this one's."""
        if self._unanswered:  # whose answer is written, and which would stay in memory until its client has sent it all
            self._transport.flush()
            abort_connection(self._place.owner, EVICTED)
        else:
            self.end_reading(_no_room())

    def end_reading(self, error: RedbatchError | None) -> None:
        """Refuses what has arrived, with an error, or because it is not HTTP (None); nothing more is read.

        If answers are due to requests before it, these are sent, and then the connection is closed without another one,
        which the client would take for one of them. What is wrong with a body is the answer to its request.
        """
        if self._is_ended or self.transport.is_closing():
            return
        self._is_ended = True
        if self._in_body and self.pipeline:  # its turn never comes
            self.pipeline.popleft()
            self._unanswered.remove_last()
            self._in_body, self.cycle = False, self._unanswered.last
        is_answer_due = self.cycle.response_started if self._in_body else bool(self._unanswered)
        self._drop_unfinished_head()
        if error is None:
            log_invalid(self._address)
        refusal = None if error is None else early_error(error, self._address)
        if is_answer_due:
            self.shutdown()
        elif refusal is None:
            self.send_400_response(INVALID_HTTP)
        else:
            self._unanswered.disconnect()  # the refusal is the answer
            self._client.leave()
            self._refusal = HeadRefusal(self._transport, refusal)

    def _drop_unfinished_head(self) -> None:
        self.parser = self.scope = None  # type: ignore[assignment]  # as uvicorn does: they hold parts of the head
        self.url, self.headers = b"", []
        self._in_head, self._behind_bytes, self._head_bytes = False, 0, 0
        self._limiter.update_head(self._place, self._unanswered.num_bytes)

    def on_headers_complete(self) -> None:
        """A head has arrived. It counts until its request is answered."""
        if self.is_for_other_protocol():
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            abort_connection(self.transport, PIPELINED)
            self._stop_parsing(RequestError("Too many requests before an answer."))
        is_large = self._behind_bytes + self._head_bytes > SMALL_HEAD_BYTES
        num_bytes = self._num_head_bytes() if is_large or self._place.is_busy else 0
        self._in_head, self._behind_bytes, self._head_bytes = False, 0, 0
        if num_bytes:
            num_unanswered_bytes = self._unanswered.num_bytes + num_bytes
            if not self._limiter.update_head(self._place, num_unanswered_bytes, is_complete=True):
                self._stop_parsing(_no_room())
        self.scope["state"][CLIENT] = self._client
        super().on_headers_complete()
        self._unanswered.add(self.cycle, num_bytes)
        self._in_body = True
        self._limiter.table.start_request(self._place)

    def _num_head_bytes(self) -> int:
        """Returns the size of the head that has arrived, without its separators; a body may have come with it.

        Behind another request, with what its fields take in memory.
        """
        field_bytes = FIELD_BYTES if self._place.is_busy else 0
        return len(self.url) + sum(len(name) + len(value) + field_bytes for name, value in self.headers)

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
        if not self._in_body:  # its head is parsed again: see is_for_other_protocol
            return
        self._head_bytes, self._in_body = 0, False
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
        self._transport.flush()
        self._unanswered.remove_first()
        if self.cycle.response_complete:
            self._release()
        if self.flow.write_paused:
            self._is_answer_unsent = True
            self.flow.pause_reading()
            self._end_request()  # so that the connection may be closed for another one
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
        if not self.cycle.response_complete:
            self.count_heads()
            return
        self._end_request()
        if self._in_head or self._head_bytes or self.cycle.more_body:
            self._limiter.expect_head(self._place)

    def _end_request(self) -> None:
        self._limiter.table.end_request(self._place)
        if self._place.head_bytes:  # from now on, a head that has begun counts as one that is unfinished
            self._claim_room(self._unanswered.num_bytes + self._behind_bytes + self._head_bytes)

    def _release(self) -> None:
        """Releases what is in memory of the last request, which would stay there while the connection is idle."""
        self.cycle.scope, self.cycle.body = None, bytearray()  # type: ignore[assignment]  # it is used no more
        if not self._in_head:
            self.scope, self.headers, self.url = None, [], b""  # type: ignore[assignment]  # until the next one begins


def _no_room() -> TooManyHeadsError:
    return TooManyHeadsError("The gateway has no room for the heads of more requests: send the request again.")
