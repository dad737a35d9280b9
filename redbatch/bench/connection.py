"""One keep-alive connection of the load generator, with at most one request in flight."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from redbatch.bench.answers import Answer, AnswerParser, MalformedAnswerError

CONNECTION_LOST = "connection_lost"
MALFORMED = "malformed_answer"


class ConnectionCallbacks(Protocol):
    """Who sends requests over the connection and hears of their end."""

    def answered(self, connection: Connection, answer: Answer) -> None:
        """The request in flight has its answer. The connection is free, or closing when the answer said so."""

    def failed(self, connection: Connection, code: str) -> None:
        """The request in flight will have no answer; the connection is gone."""

    def closed(self, connection: Connection) -> None:
        """The connection is gone while nothing was in flight."""


class Connection(asyncio.Protocol):
    """Writes whole requests and reads answers. `began_s` and the byte counts are those of the latest request."""

    def __init__(self, owner: ConnectionCallbacks, *, keep_bodies: bool) -> None:
        self._owner = owner
        self._reader = AnswerParser(keep_bodies=keep_bodies)
        self._transport: asyncio.Transport
        self.busy = False
        self.gone = False
        self.began_s = 0.0
        self.sent_bytes = 0
        self.received_bytes = 0

    def send(self, request: bytes, began_s: float) -> None:
        """Sends a request that was to be sent at `began_s`."""
        self.busy = True
        self.began_s = began_s
        self.sent_bytes = len(request)
        self.received_bytes = 0
        self._transport.write(request)

    def give_up(self, code: str) -> None:
        """Drops the connection; the request in flight, if any, ends with this code."""
        self._transport.abort()
        self._leave(code)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop's: connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """The loop's: bytes came."""
        if self.gone:
            return
        self.received_bytes += len(data)
        try:
            answer = self._reader.feed(data)
        except MalformedAnswerError:
            self.give_up(MALFORMED)
            return
        if answer is None:
            return
        if not self.busy:
            self.give_up(MALFORMED)
            return
        self._finish(answer)

    def eof_received(self) -> None:
        """The loop's: the server sends no more, which completes an answer without a length."""
        answer = self._reader.end()
        if answer is not None and self.busy and not self.gone:
            self._finish(answer)

    def connection_lost(self, _error: Exception | None) -> None:
        """The loop's: the end."""
        self._leave(CONNECTION_LOST)

    def _finish(self, answer: Answer) -> None:
        self.busy = False
        if not answer.keep_alive:
            self.gone = True
            self._transport.close()
        self._owner.answered(self, answer)

    def _leave(self, code: str) -> None:
        if self.gone:
            return
        self.gone = True
        if self.busy:
            self.busy = False
            self._owner.failed(self, code)
        else:
            self._owner.closed(self)
