"""What a connection adds to uvicorn's: answers in one write, and clients of whom it is known that they left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

import pytest
import uvicorn

from api.http.protocol import PEER, WHOLE, Connection, Outlet, Peer

HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[bytes | str] = []

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Sends, in one system call."""
        self.said.append(b"".join(list_of_data))

    def close(self) -> None:
        """Ends."""
        self.said.append("closed")

    def is_closing(self) -> bool:
        """Whether it was told to end."""
        return "closed" in self.said

    def pause_reading(self) -> None:
        """Reads no more."""
        self.said.append("paused")

    def resume_reading(self) -> None:
        """Reads again."""
        self.said.append("resumed")


async def written(then: Callable[[Outlet], None]) -> tuple[list[bytes | str], list[bytes | str]]:
    """Writes twice and does something; returns what was sent by then, and by the end of the event loop's turn."""
    wire = Wire()
    outlet = Outlet(wire, asyncio.get_running_loop())
    outlet.write(b"head, ")
    outlet.write(b"body")
    then(outlet)
    at_once = list(wire.said)
    await asyncio.sleep(0)
    return at_once, wire.said


@pytest.mark.parametrize(
    ("then", "at_once", "in_the_end"),
    [
        (lambda _: None, [], [b"head, body"]),
        (Outlet.flush, [b"head, body"], [b"head, body"]),
        (Outlet.close, [b"head, body", "closed"], [b"head, body", "closed"]),
    ],
    ids=["nothing more", "flush", "close"],
)
def test_what_is_written_in_one_turn_goes_together(
    then: Callable[[Outlet], None], at_once: list[bytes | str], in_the_end: list[bytes | str]
) -> None:
    """Nothing waits longer, nothing is sent twice, and nothing is lost by closing."""
    assert asyncio.run(written(then)) == (at_once, in_the_end)


class Line:
    """A connection whose application notes what it is told of each request, and answers when told to."""

    def __init__(self) -> None:
        config = uvicorn.Config(self._app, interface="asgi3", proxy_headers=False, http=Connection, log_config=None)
        config.load()
        self.peers: list[Peer] = []
        self.ends: list[str] = []
        self.whole: list[bool] = []
        self.answers = asyncio.Event()
        self.wire = Wire()
        self.connection = Connection(config, uvicorn.Server(config).server_state, {}, asyncio.get_running_loop())
        self.connection.connection_made(self.wire)

    async def _app(
        self,
        scope: dict[str, dict[str, object]],
        _receive: object,
        send: Callable[[dict[str, object]], Awaitable[None]],
    ) -> None:
        peer = scope["state"][PEER]
        assert isinstance(peer, Peer)
        self.peers.append(peer)
        self.whole.append(WHOLE in scope["state"])
        peer.watch()
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.ends.append("left" if peer.gone else "cut off")
        else:
            self.ends.append("answered")
        peer.unwatch()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.loses()

    async def loses(self, error: Exception | None = None) -> None:
        """Its client leaves."""
        self.connection.connection_lost(error)
        await asyncio.sleep(0.01)

    async def hears(self, *parts: bytes) -> None:
        """Receives each part, with time between them."""
        for part in parts:
            self.connection.data_received(part)
            await asyncio.sleep(0.01)


def test_an_answer_is_one_write() -> None:
    """Of head and body; each write is a packet, and one more read of the client."""

    async def said() -> list[bytes | str]:
        async with Line() as line:
            line.answers.set()
            await line.hears(HEAD + b"body", HEAD + b"body")
            return list(line.wire.said)

    answers = [each for each in asyncio.run(said()) if isinstance(each, bytes)]
    assert len(answers) == 2
    assert all(each.startswith(b"HTTP/1.1 200") and each.endswith(b"\r\n\r\nok") for each in answers)


@pytest.mark.parametrize(("parts", "whole"), [((HEAD + b"body",), True), ((HEAD, b"body"), False)])
def test_a_request_knows_whether_its_body_is_here(parts: tuple[bytes, ...], *, whole: bool) -> None:
    """One whose body is still on its way has to bound how long it waits for it."""

    async def known() -> list[bool]:
        async with Line() as line:
            await line.hears(*parts)
            return line.whole

    assert asyncio.run(known()) == [whole]


@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "reset"])
@pytest.mark.parametrize("waiting", [1, 2])
def test_a_request_ends_when_its_client_leaves(waiting: int, error: Exception | None) -> None:
    """Also with another behind it, which never begins. Nothing is written to a client that has left."""

    async def told() -> tuple[list[str], list[bytes | str]]:
        async with Line() as line:
            await line.hears(*[HEAD + b"body"] * waiting)
            await line.loses(error)
            return list(line.ends), [each for each in line.wire.said if isinstance(each, bytes)]

    assert asyncio.run(told()) == (["left"], [])


def test_a_request_that_is_answered_has_no_part_in_what_comes() -> None:
    """When its client leaves later, its task is let be; the next one's is told."""

    async def told() -> list[str]:
        async with Line() as line:
            line.answers.set()
            await line.hears(HEAD + b"body")
            line.answers.clear()
            await line.hears(HEAD + b"body")
            await line.loses()
            return list(line.ends)

    assert asyncio.run(told()) == ["answered", "left"]


def test_what_still_waits_when_a_client_leaves_is_dropped() -> None:
    """Uvloop's transport raises an error where something is written to it after its end."""

    async def said() -> list[bytes | str]:
        async with Line() as line:
            line.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await line.loses(ConnectionResetError())
            return list(line.wire.said)

    assert asyncio.run(said()) == []


@pytest.mark.parametrize(("size", "last"), [(10, None), (200_000, "resumed")])
def test_a_connection_is_read_on_while_its_request_waits(size: int, last: str | None) -> None:
    """Otherwise nobody would see that the client of a long body has left: uvicorn stops at 64 KiB until it is read."""

    async def said() -> list[bytes | str]:
        async with Line() as line:
            head = HEAD.replace(b"Length: 4", b"Length: %d" % size)
            await line.hears(head + b"x" * (size // 2), b"x" * (size - size // 2))
            return list(line.wire.said)

    found = asyncio.run(said())
    assert (found[-1] if found else None) == last


def test_requests_that_come_too_early_wait_unread() -> None:
    """While one is at work a second waits, and with a third nothing more is read: no client can fill the memory."""

    async def said() -> tuple[list[bytes | str], int]:
        async with Line() as line:
            await line.hears(*[HEAD + b"body"] * 3)
            return list(line.wire.said), len(line.peers)

    assert asyncio.run(said()) == (["paused", "resumed", "paused"], 1)
