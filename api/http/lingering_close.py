"""An answer to a request whose body is not read to its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from fastapi import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SILENT_S = 1.0
LINGER_S = 30.0
LINGER_BYTES = 64 * 2**20


class LastWords(Response):
    """Says it, and closes the connection a little later.

    What the client still sends is read and dropped, until it is silent for SILENT_S or goes on for too long, as RFC
    9112 (9.6) has it: to close a connection on which unread data waits is to reset it, and a client that is still
    sending may never see the answer.
    """

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, as ASGI."""
        self.headers["connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await _drop_body(receive)
        await send({"type": "http.response.body", "body": b""})


async def _drop_body(receive: Receive) -> None:
    dropped, more = 0, True
    while more and dropped < LINGER_BYTES:
        async with asyncio.timeout(SILENT_S):
            message = await receive()
        dropped += len(message.get("body", b""))
        more = message.get("more_body", False)  # a disconnect has none
