"""Answers in one message: an extension of ASGI. uvicorn's two messages and its checks of each field take too long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from api.http.coalescing_transport import CoalescingTransport

WHOLE_ANSWER = "redbatch.answer"
"""Type of the message with a whole answer, and the name of the extension in a scope whose `send` takes it.

It has the fields `status`, `headers` (texts by names in lower case, without those of the body) and `body` (JSON).
"""

EXTENSIONS: dict[str, dict[object, object]] = {WHOLE_ANSWER: {}}
"""Of the scope of a request with a method other than HEAD, whose answer has no body."""

_FORBIDDEN = re.compile(r"[^\x09\x20-\x7e\x80-\xff]")


def begins_answer(message: Message) -> bool:
    """Returns whether an ASGI message has the status and the headers of an answer, whether or not its body, too."""
    return "status" in message


def answered_request_id(message: Message) -> str:
    """Returns the request id in a message that begins an answer, "" if it has none."""
    if message["type"] == WHOLE_ANSWER:
        return str(message["headers"].get("x-request-id", ""))
    ids = (value.decode("latin-1") for name, value in message.get("headers", ()) if name == b"x-request-id")
    return next(ids, "")


class WholeResponse(Response):
    """A JSON answer that is sent in one message if the server takes it.

    Args:
        body: of the answer.
        status: of the answer.
        headers: of the answer, without those of the body.
    """

    media_type = "application/json"

    def __init__(self, body: bytes, status: int, headers: dict[str, str]) -> None:
        # not `super().__init__`: it takes as long as all the rest
        self.status_code, self.body, self.background = status, body, None
        self._fields = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, as ASGI."""
        if WHOLE_ANSWER in scope.get("extensions", ()):
            fields = {"status": self.status_code, "headers": self._fields, "body": self.body}
            await send({"type": WHOLE_ANSWER, **fields})
            return
        self.init_headers(self._fields)
        await super().__call__(scope, receive, send)


class AnswerCycle(RequestResponseCycle):
    """Answers one request, as uvicorn's cycle does, also in one message.

    Attributes:
        held_bytes: what the request counts for among those of its connection that are not answered.
    """

    transport: CoalescingTransport  # type: ignore[assignment]  # uvicorn declares one of asyncio's
    held_bytes = 0

    async def send(self, message: Any) -> None:  # noqa: ANN401 - uvicorn's types lack the extension
        """Takes a message, as ASGI. Raises RuntimeError: an answer is malformed, or is none to this request."""
        if message["type"] != WHOLE_ANSWER:
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.response_started:
            raise RuntimeError("The request has an answer.")
        body = message["body"]
        head = self._head(message["status"], message["headers"], len(body))
        self.response_started, self.waiting_for_100_continue = True, False
        self.transport.add(head, body)  # `on_response` flushes
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _head(self, status: int, fields: Mapping[str, str], num_bytes: int) -> bytes:
        """Returns the head; names are our own. Raises RuntimeError: a value has a character that no header may have."""
        if _FORBIDDEN.search("".join(fields.values())):
            raise RuntimeError("A header of the answer has a control character, or one beyond latin-1.")
        lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()]).encode("latin-1")
        close = b""
        if fields.get("connection") == "close":
            self.keep_alive = False
        elif not self.keep_alive:
            close = b"connection: close\r\n"
        defaults = b"".join([b"%b: %b\r\n" % field for field in self.default_headers])
        of_body = b"content-length: %d\r\ncontent-type: application/json\r\n" % num_bytes
        return b"%b%b%b%b%b\r\n" % (STATUS_LINE[status], defaults, lines, of_body, close)
