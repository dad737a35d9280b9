"""Answers that close the connection: the one to a request whose body is not read to its end, and any other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from fastapi import Response

from api.http.answer_cycle import WHOLE_ANSWER, begins_answer
from api.http.client_connection import CLIENT

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

MAX_SILENCE_S = 1.0
MAX_LINGER_S = 30.0
MAX_LINGER_BYTES = 64 * 2**20


class LingeringCloseResponse(Response):
    """An answer after which the connection is closed, but not at once (RFC 9112, 9.6).

    The rest of the body is read and dropped, until the client is silent for MAX_SILENCE_S, or for at most MAX_LINGER_S
    and MAX_LINGER_BYTES, or until another client needs the connection. To close a connection with unread data resets
    it, and a client that is still sending may then never see the answer.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, as ASGI."""
        self.headers["connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        scope["state"][CLIENT].start_linger()
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_LINGER_S):
                await _drop_body(receive)
        await send({"type": "http.response.body", "body": b""})


def close_connection(send: Send) -> Send:
    """Returns a `send` that sets `Connection: close`."""

    async def send_closing(message: Message) -> None:
        if message["type"] == WHOLE_ANSWER:
            message["headers"]["connection"] = "close"
        elif begins_answer(message):
            others = [pair for pair in message["headers"] if pair[0] != b"connection"]
            message["headers"] = [*others, (b"connection", b"close")]
        await send(message)

    return send_closing


async def _drop_body(receive: Receive) -> None:
    dropped, more = 0, True
    while more and dropped < MAX_LINGER_BYTES:
        async with asyncio.timeout(MAX_SILENCE_S):
            message = await receive()
        dropped += len(message.get("body", b""))
        more = message.get("more_body", False)  # a disconnect has no such field
