"""Refuses what a connection receives if it is not HTTP, over its limits, or without room beside all other heads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from api.http.client_connection import ClientConnection
from api.http.coalescing_transport import CoalescingTransport
from api.http.connection_limiter import EVICTED, abort_connection
from api.http.early_error import INVALID_HTTP, early_error, log_dropped, log_invalid
from api.http.head_refusal import HeadRefusal
from api.http.parsing_protocol import ParsingProtocol
from api.http.unanswered_requests import UnansweredRequests
from shared.errors import RedbatchError, TooManyHeadsError

if TYPE_CHECKING:
    from api.http.answer_cycle import AnswerCycle
    from api.http.connection_limiter import ConnectionLimiter
    from api.http.connection_table import Place
    from api.http.idle_timer import IdleTimer
    from api.http.unsent_limiter import UnsentLimiter

FIELD_BYTES = 200
"""Approximate memory of a header field beside its bytes."""


class RefusingProtocol(ParsingProtocol):
    """Counts what a connection holds among that of all, and ends it with a refusal, or with the answers due.

    Args:
        args: uvicorn's.
        limiter: of the connections of all clients.
        unsent: bounds the unsent bytes of these connections.
        idle: closes those that are idle for long.
        kwargs: those of ParsingProtocol, and uvicorn's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - uvicorn's
        limiter: ConnectionLimiter,
        unsent: UnsentLimiter,
        idle: IdleTimer,
        **kwargs: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self._limiter, self._unsent, self._idle = limiter, unsent, idle
        self._unanswered = UnansweredRequests()
        self._client = ClientConnection()
        self._refusal: HeadRefusal | None = None
        self._unsent_cycle: AnswerCycle | None = None  # its answer is written, and not sent
        self._place: Place[asyncio.Transport]
        self._transport: CoalescingTransport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused while anything is unsent
        self._transport = CoalescingTransport(transport, self.loop, self.flow, self._unsent, self._unanswered)
        self.transport = self._transport  # type: ignore[assignment]
        self._place = self._limiter.admit(transport, self.address, self.free_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection, or the connection is lost."""
        self._transport.drop_writes()
        self._idle.stop(self._place.owner)
        self._unsent.remove(self._place.owner)
        self._limiter.remove(self._place)
        if self._refusal is not None:
            self._refusal.cancel()
        super().connection_lost(exc)

    def _unset_keepalive_if_required(self) -> None:
        """A request begins: uvicorn's protocol stops its own timer here."""
        self._idle.stop(self._place.owner)

    @property
    def address(self) -> str:
        """The client's address; "" if it has none."""
        return self.client[0] if self.client else ""

    @property
    def num_head_bytes(self) -> int:
        """Size of the head that has arrived, without its separators; a body may have come with it.

        Behind another request, with what its fields take in memory.
        """
        field_bytes = FIELD_BYTES if self._place.is_busy else 0
        return len(self.url) + sum(len(name) + len(value) + field_bytes for name, value in self.headers)

    def count_heads(self) -> None:
        """Counts the heads in memory, and what waits behind a request, unless they are as large as before."""
        num_bytes, place = self.unfinished_bytes, self._place
        has_changed = num_bytes != place.unfinished_bytes or num_bytes + self._unanswered.num_bytes != place.head_bytes
        if has_changed and not self.transport.is_closing():
            self._claim_room()

    def end_request(self) -> None:
        """A request is answered. The next head, if it has begun, counts as an unfinished one from now on."""
        self._limiter.table.end_request(self._place)
        if self._place.head_bytes:
            self._claim_room()

    def start_sending(self, answered: AnswerCycle) -> None:
        """An answer is written, and not sent: until it is, nothing is read, and the connection may be closed."""
        self._unsent_cycle = answered
        self.flow.pause_reading()
        self.end_request()
        self._limiter.table.drop_deadline(self._place)  # of a head that cannot arrive

    def end_sending(self) -> bool:
        """Everything written is sent. Returns whether an answer is among that: a request that waits may then begin."""
        self._unsent.remove(self._place.owner)
        if self._unsent_cycle is None:
            return False
        self._unsent_cycle = None
        self._limiter.table.start_request(self._place)
        return True

    def _claim_room(self) -> None:
        request_bytes = self._unanswered.num_bytes
        if not self._limiter.update_head(self._place, self.unfinished_bytes, request_bytes=request_bytes):
            self.end_reading(no_room())

    def free_head(self) -> None:
        """The heads of other connections need the room of this one's."""
        if self._place.is_busy:  # it lingers: its request holds the room until the client has sent the whole body
            self._transport.flush()
            abort_connection(self._place.owner, EVICTED)
        else:
            self.end_reading(no_room())

    def drop_received(self, num_bytes: int) -> None:
        """Bytes have arrived after the end."""
        if self._refusal is not None:
            self._refusal.drop(num_bytes)

    def end_reading(self, error: RedbatchError | None) -> None:
        """Refuses what has arrived, with an error, or because it is not HTTP (None); nothing more is read.

        If answers to requests before it are due or unsent, they are sent, and then the connection is closed without
        another one, which the client would take for one of them. What is wrong with a body is the answer to its
        request.
        """
        if self.is_ended or self.transport.is_closing():
            return
        self.is_ended = True
        is_answer_due = self._is_answer_due()
        if self._in_body and self.pipeline:  # its turn never comes
            self.pipeline.popleft()
            self._unanswered.remove_last()
            self.cycle = self._unanswered.last or self._unsent_cycle  # type: ignore[assignment]  # it waits behind one
        self.drop_unfinished()
        self._limiter.update_head(self._place, 0, request_bytes=self._unanswered.num_bytes)
        if is_answer_due:
            log_dropped(error, self.address)
            self.shutdown()
        elif error is None:
            log_invalid(self.address)
            self.send_400_response(INVALID_HTTP)
        else:
            self._unanswered.disconnect()  # the refusal is the answer
            self._client.leave()
            self._refusal = HeadRefusal(self._transport, early_error(error, self.address))

    def _is_answer_due(self) -> bool:
        if self._in_body and not self.pipeline:  # the request of this body is being answered
            return self.cycle.response_started
        return bool(self._unanswered) or self._unsent_cycle is not None


def no_room() -> TooManyHeadsError:
    """Returns the error for a head that must go for those of other connections."""
    return TooManyHeadsError("The gateway has no room for the heads of more requests: send the request again.")
