"""One keep-alive connection of the load generator, with at most one request in flight."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from redbatch.bench.answers import Answer, AnswerParser, MalformedAnswerError

CONNECTION_LOST = "connection_lost"
MALFORMED = "malformed_answer"


class ConnectionCallbacks(Protocol):
    """Receives the outcomes of the requests on a connection."""

    def on_answer(self, connection: Connection, answer: Answer) -> None:
        """The request in flight got its answer. The connection is free, or closes if the answer requires that."""

    def on_failure(self, connection: Connection, code: str) -> None:
        """The request in flight gets no answer; the connection is closed."""

    def on_close(self, connection: Connection) -> None:
        """The connection was closed while no request was in flight."""


class Connection(asyncio.Protocol):
    """Writes complete requests and parses answers. `start_s` and the byte counts are those of the latest request."""

    def __init__(self, callbacks: ConnectionCallbacks, *, keep_bodies: bool) -> None:
        self._callbacks = callbacks
        self._parser = AnswerParser(keep_bodies=keep_bodies)
        self._transport: asyncio.Transport
        self.busy = False
        self.closed = False
        self.start_s = 0.0
        self.sent_bytes = 0
        self.received_bytes = 0

    def send(self, request: bytes, start_s: float) -> None:
        """Sends a request that was due at `start_s`."""
        self.busy = True
        self.start_s = start_s
        self.sent_bytes = len(request)
        self.received_bytes = 0
        self._transport.write(request)

    def abort(self, code: str) -> None:
        """Aborts the connection; a request in flight ends with this code."""
        self._transport.abort()
        self._close(code)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop when the connection is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with received bytes."""
        if self.closed:
            return
        self.received_bytes += len(data)
        try:
            answer = self._parser.feed(data)
        except MalformedAnswerError:
            self.abort(MALFORMED)
            return
        if answer is None:
            return
        if not self.busy:
            self.abort(MALFORMED)
            return
        self._finish(answer)

    def eof_received(self) -> None:
        """Called by the event loop when the server ends its stream, which completes an answer without a length."""
        answer = self._parser.end()
        if answer is not None and self.busy and not self.closed:
            self._finish(answer)

    def connection_lost(self, _error: Exception | None) -> None:
        """Called by the event loop when the connection is closed."""
        self._close(CONNECTION_LOST)

    def _finish(self, answer: Answer) -> None:
        self.busy = False
        if not answer.keep_alive:
            self.closed = True
            self._transport.close()
        self._callbacks.on_answer(self, answer)

    def _close(self, code: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self.busy:
            self.busy = False
            self._callbacks.on_failure(self, code)
        else:
            self._callbacks.on_close(self)
