"""An answer in one message is the same as one in two."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from api.http.answer_cycle import WHOLE_ANSWER, WholeResponse
from tests.unit.api.http.connection_under_test import HEAD, ConnectionUnderTest

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

POST = HEAD + b"body"
OLD_HEAD = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0")
CLOSING_HEAD = HEAD.replace(b"Host: x", b"Host: x\r\nConnection: close")
EXPECTING_HEAD = HEAD.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")


class AnsweredConnection(ConnectionUnderTest):
    """A connection whose requests get one response, in the message that its scope has the extension for, or in two."""

    def __init__(self, response: WholeResponse, *, in_two: bool = False, reads: bool = False) -> None:
        super().__init__()
        self._response, self._in_two, self._reads = response, in_two, reads

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if self._in_two:
            scope.pop("extensions", None)
        if self._reads:
            await receive()
        await self._response(scope, receive, send)


async def written(
    request: bytes, response: WholeResponse, *, in_two: bool = False, reads: bool = False
) -> list[bytes | str]:
    """Returns what was written to the connection for a request."""
    async with AnsweredConnection(response, in_two=in_two, reads=reads) as connection:
        await connection.receive(request)
        return list(connection.transport.calls)


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD, CLOSING_HEAD])
@pytest.mark.parametrize("fields", [{}, {"x-queue-time": "0.1"}, {"connection": "close"}, {"a": "\u00e9"}])
@pytest.mark.parametrize("status", [200, 429, 503])
async def test_an_answer_is_the_same_in_one_message(head: bytes, fields: dict[str, str], status: int) -> None:
    """So are the ends of connections."""
    response = WholeResponse(b'{"embedding":[]}', status, fields)
    found = await written(head + b"body", response)
    assert found == await written(head + b"body", response, in_two=True)
    assert found[0].endswith(b'\r\n\r\n{"embedding":[]}')  # type: ignore[arg-type]


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    "request_bytes",
    [POST * 3, POST + HEAD, EXPECTING_HEAD, EXPECTING_HEAD + b"body", POST.replace(b"POST", b"HEAD"), HEAD],
    ids=["pipelined", "half behind it", "expecting", "expecting with body", "HEAD", "without body"],
)
async def test_other_requests_are_answered_as_in_two(request_bytes: bytes, *, reads: bool) -> None:
    """Also those that the extension is not for."""
    response = WholeResponse(b"{}", 200, {"x": "y"})
    found = await written(request_bytes, response, reads=reads)
    assert found == await written(request_bytes, response, in_two=True, reads=reads)


async def begin_and_block(connection: AnsweredConnection) -> None:
    """The client does not read the first answer; then it does."""
    connection.transport.blocks = True
    await connection.receive(POST * 2)
    connection.transport.send_all()
    await connection.wait()


async def shut_down(connection: AnsweredConnection) -> None:
    """The server shuts down before the answer."""
    connection.protocol.data_received(POST)
    connection.protocol.shutdown()
    await connection.wait()


async def leave(connection: AnsweredConnection) -> None:
    """The client leaves before the answer."""
    connection.protocol.data_received(POST)
    connection.protocol.connection_lost(None)
    await connection.wait()


@pytest.mark.parametrize("happens", [begin_and_block, shut_down, leave])
async def test_whatever_happens_the_writes_are_the_same(
    happens: Callable[[AnsweredConnection], Awaitable[None]],
) -> None:
    """A client that does not read, the end of the server, and a client that leaves."""
    calls = []
    for in_two in (False, True):
        connection = AnsweredConnection(WholeResponse(b"{}", 200, {}), in_two=in_two)
        await happens(connection)
        calls.append(list(connection.transport.calls))
        await connection.lose()
    assert calls[0] == calls[1]


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b", "\x7f", "\u0100"])
async def test_a_header_cannot_end_the_head(value: str, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is an error, with nothing of the header."""
    with caplog.at_level(logging.CRITICAL):
        found = await written(POST, WholeResponse(b"{}", 200, {"x": value}))
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
                await send({"type": WHOLE_ANSWER, "status": 200, "headers": {}, "body": b""})
            except RuntimeError as error:
                errors.append(error)

    found = await written(POST, TwiceAnswered(b"{}", 200, {}))
    assert len(errors) == 1
    assert b"".join(each for each in found if isinstance(each, bytes)).count(b"HTTP/1.1") == 1
