"""An answer in one message is the same as one in two, whatever the request."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from api.http.answer_cycle import WHOLE_ANSWER, WholeResponse
from tests.unit.api.http.connection_under_test import HEAD, ConnectionUnderTest

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

OLD_HEAD = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0")
CLOSING_HEAD = HEAD.replace(b"Host: x", b"Host: x\r\nConnection: close")


class AnsweredConnection(ConnectionUnderTest):
    """A connection whose requests get one response, in the message that its scope has the extension for, or in two."""

    def __init__(self, response: WholeResponse, *, in_two: bool = False) -> None:
        super().__init__()
        self._response, self._in_two = response, in_two

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if self._in_two:
            del scope["extensions"]
        await self._response(scope, receive, send)


async def written(request: bytes, response: WholeResponse, *, in_two: bool = False) -> list[bytes | str]:
    """Returns what was written to the connection for a request."""
    async with AnsweredConnection(response, in_two=in_two) as connection:
        await connection.receive(request)
        await asyncio.sleep(0)
        return [each for each in connection.transport.calls if each != "resumed"]


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD, CLOSING_HEAD])
@pytest.mark.parametrize("fields", [{}, {"x-queue-time": "0.1"}, {"connection": "close"}, {"a": "\u00e9"}])
@pytest.mark.parametrize("status", [200, 429, 503])
async def test_an_answer_is_the_same_in_one_message(head: bytes, fields: dict[str, str], status: int) -> None:
    """So are the ends of connections."""
    response = WholeResponse(b'{"embedding":[]}', status, fields)
    found = await written(head + b"body", response)
    assert found == await written(head + b"body", response, in_two=True)
    assert found[0].endswith(b'\r\n\r\n{"embedding":[]}')  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b"])
async def test_a_header_cannot_end_the_head(value: str, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is an error, with nothing of the header."""
    with caplog.at_level(logging.CRITICAL):
        found = await written(HEAD + b"body", WholeResponse(b"{}", 200, {"x": value}))
    assert isinstance(found[0], bytes)
    assert found[0].startswith(b"HTTP/1.1 500 ")
    assert b"Cookie" not in found[0]


async def test_a_request_is_answered_once() -> None:
    """A second answer is an error of the application, as in uvicorn."""
    errors: list[RuntimeError] = []

    class TwiceAnswered(WholeResponse):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await super().__call__(scope, receive, send)
            try:
                await send({"type": WHOLE_ANSWER, "status": 200, "headers": [], "body": b""})
            except RuntimeError as error:
                errors.append(error)

    found = await written(HEAD + b"body", TwiceAnswered(b"{}", 200, {}))
    assert len(errors) == 1
    assert b"".join(each for each in found if isinstance(each, bytes)).count(b"HTTP/1.1") == 1
