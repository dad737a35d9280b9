"""The HTTP protocol of a connection: that of uvicorn, with bounds, fewer writes, and notice of departures."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from api.http.client_connection import CLIENT
from api.http.connection_limiter import PIPELINED, abort_connection
from api.http.connection_table import SMALL_HEAD_BYTES
from api.http.probes_only import ProbesOnlyApp
from api.http.refusing_protocol import RefusingProtocol, no_room
from shared.errors import RequestError

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from api.http.answer_cycle import AnswerCycle

COMPLETE_BODY, QUEUE, OP = "complete_body", "queue", "op"
"""Keys in the `state` of a request's scope: its body (a bytearray), set once it has arrived; the name of its queue, and
the operation that the queue is to run, set once these are known.
"""

MAX_PIPELINED = 8
"""Maximum requests that wait behind the one that is being answered; one read may bring thousands. Usual clients send
the next request after the answer.
"""

ERRORS_ONLY = logging.getLogger("uvicorn.error.connection")
"""uvicorn's logger of connections: any client can cause its warnings."""

ERRORS_ONLY.setLevel(logging.ERROR)


class GatewayProtocol(RefusingProtocol):
    """Reads requests and writes answers, the head and the body of an answer in one write.

    Each request can find out, without a separate task, whether its client has left and whether its body has arrived.
    A request begins once the answer to the one before it is sent, so that a client cannot fill the memory with answers.

    Args:
        args: uvicorn's.
        probe_paths: what is served on a connection beyond the limits.
        kwargs: those of RefusingProtocol, and uvicorn's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - uvicorn's
        probe_paths: frozenset[str],
        **kwargs: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self.logger = ERRORS_ONLY
        self._probe_paths = probe_paths

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._client.transport = self._transport
        self._client.start_linger = partial(self._limiter.start_linger, self._place)
        if self._place.is_spare:
            self.app = ProbesOnlyApp(self.app, self._probe_paths)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection, or the connection is lost."""
        super().connection_lost(exc)
        self._unanswered.disconnect()
        self._client.leave()
        for cycle, _ in self.pipeline:
            cycle.on_response = lambda: None  # it never begins; a reference to this connection would make a cycle
        self.pipeline.clear()

    def on_headers_complete(self) -> None:
        """A head has arrived. It counts until its request is answered."""
        if self.is_for_other_protocol():
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            abort_connection(self.transport, PIPELINED)
            self.stop_parsing(RequestError("Too many requests before an answer."))
        is_large = self.unfinished_bytes > SMALL_HEAD_BYTES
        num_bytes = self.num_head_bytes if is_large or self._place.is_busy else 0
        if num_bytes:
            request_bytes = self._unanswered.num_bytes
            if not self._limiter.update_head(self._place, num_bytes, request_bytes=request_bytes, is_complete=True):
                self.stop_parsing(no_room())
        self.scope["state"][CLIENT] = self._client
        super().on_headers_complete()
        self._unanswered.add(self.cycle, num_bytes)
        self._limiter.table.start_request(self._place)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Does what uvicorn's does, without its `reset_contextvars`, which is not set."""
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._client.task = task

    def on_body(self, body: bytes) -> None:
        """A part of a body has arrived."""
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
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before its body came: now the connection is idle
            self._limiter.table.drop_deadline(self._place)
            self._idle.start(self._place.owner, self.loop)
        else:
            self.scope["state"][COMPLETE_BODY] = self.cycle.body
        if len(self.pipeline) <= 1:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is written. Nothing is read until it is sent, and no request begins that has been read before."""
        self._transport.flush()
        answered = self._unanswered.remove_first()
        self._release(answered)
        if self.flow.write_paused:
            self.start_sending(answered)
        else:
            self._complete_response()

    def resume_writing(self) -> None:
        """Everything that was written is sent."""
        super().resume_writing()
        if self.end_sending():
            self._complete_response()

    def _complete_response(self) -> None:
        """Does what uvicorn's `on_response_complete` does, without a timer for each connection.

        Nor does it count requests, which is for uvicorn's `limit_max_requests`, which is not set.
        """
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self._idle.start(self._place.owner, self.loop)
        if not self.cycle.response_complete:
            self.count_heads()
            return
        self.end_request()
        if self._in_head or self._head_bytes or self.cycle.more_body:
            self._limiter.expect_head(self._place)

    def _release(self, answered: AnswerCycle) -> None:
        """Releases what is in memory of a request, which would stay there while the answer is unsent or none is due."""
        answered.scope, answered.body = None, bytearray()  # type: ignore[assignment]  # it is used no more
        if self.cycle is answered and not self._in_head:
            self.scope, self.headers, self.url = None, [], b""  # type: ignore[assignment]  # until the next one begins
