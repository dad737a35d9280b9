"""The wire to Redis, beside what the tests of a link show: what comes in pieces, unasked for, or is no reply at all."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import hiredis
import pytest

from shared.wire import Wire

LONG_S = 10.0
SHORT_S = 0.05


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[Wire, asyncio.Transport, socket.socket]]:
    """A wire, its transport, and the other end."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    theirs.setblocking(False)
    with theirs:
        yield Wire(transport), transport, theirs
        transport.close()


async def ask(wire: Wire, theirs: socket.socket, answer: Sequence[bytes]) -> object:
    """Sends PING, answers with these pieces, and returns what came of it."""
    asked = asyncio.create_task(wire.exchange(("PING",), LONG_S))
    assert await asyncio.get_running_loop().sock_recv(theirs, 100) == b"*1\r\n$4\r\nPING\r\n"
    for piece in answer:
        theirs.send(piece)
        await asyncio.sleep(0)
    return await asked


@pytest.mark.parametrize(
    ("pieces", "reply"),
    [
        ([b"+PONG\r\n"], b"PONG"),
        ([b"$10\r\n01234", b"56789\r", b"\n"], b"0123456789"),
        ([b"*2\r\n:1\r\n", b"*1\r\n$-1\r\n"], [1, [None]]),
        ([b"*-1\r\n"], None),
    ],
)
async def test_a_reply_is_put_together(pieces: Sequence[bytes], reply: object) -> None:
    """However it is cut, it is whole when it is there."""
    async with wired() as (wire, _, theirs):
        assert await ask(wire, theirs, pieces) == reply
        assert await ask(wire, theirs, [b"+next\r\n"]) == b"next"


async def test_an_error_reply_is_a_value() -> None:
    """The connection is as good as before; what the error means is for others to say."""
    async with wired() as (wire, _, theirs):
        reply = await ask(wire, theirs, [b"-NOGROUP no such group\r\n"])
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply) == "NOGROUP no such group"
        assert await ask(wire, theirs, [b"+next\r\n"]) == b"next"


async def test_several_commands_at_once() -> None:
    """Their replies come in their order, however they are cut; an error is only its own command's reply."""
    async with wired() as (wire, transport, theirs):
        asked = asyncio.create_task(wire.exchange_all([("PING",), ("LPOP", "a", 2), ("PING",)], LONG_S))
        sent = b"*1\r\n$4\r\nPING\r\n"
        expected = sent + b"*3\r\n$4\r\nLPOP\r\n$1\r\na\r\n$1\r\n2\r\n" + sent
        assert await asyncio.get_running_loop().sock_recv(theirs, 100) == expected
        for piece in (b"+PO", b"NG\r\n-WRONG", b"TYPE\r\n+la", b"st\r\n"):
            theirs.send(piece)
            await asyncio.sleep(SHORT_S)
        first, error, last = await asked
        assert (first, last) == (b"PONG", b"last")
        assert isinstance(error, hiredis.ReplyError)
        assert await ask(wire, theirs, [b"+next\r\n"]) == b"next"
        assert not transport.is_closing()


async def test_one_reply_of_several_is_not_enough() -> None:
    """Who asked for two is not told of one."""
    async with wired() as (wire, _, theirs):
        asked = asyncio.create_task(wire.exchange_all([("PING",), ("PING",)], SHORT_S))
        await asyncio.sleep(0)
        theirs.send(b"+PONG\r\n")
        with pytest.raises(TimeoutError):
            await asked


async def test_what_is_no_reply_breaks_the_connection() -> None:
    """Nothing is guessed from it."""
    async with wired() as (wire, _, theirs):
        with pytest.raises(ConnectionError, match="no reply"):
            await ask(wire, theirs, [b"HTTP/1.1 400 Bad Request\r\n\r\n"])


@pytest.mark.parametrize("asked", [False, True])
async def test_a_reply_that_nobody_asked_for_closes_the_connection(asked: bool) -> None:
    """The next reply could not be told from it: one that comes unasked, or behind the one that was asked for."""
    async with wired() as (wire, transport, theirs):
        if asked:
            assert await ask(wire, theirs, [b"+PONG\r\n+for whom?\r\n"]) == b"PONG"
        else:
            theirs.send(b"+for whom?\r\n")
        await asyncio.sleep(SHORT_S)
        assert transport.is_closing()
        with pytest.raises(ConnectionError, match="not connected"):
            await wire.exchange(("PING",), LONG_S)


async def test_a_connection_that_is_lost_meanwhile() -> None:
    """Whoever waits is told at once."""
    async with wired() as (wire, _, theirs):
        asked = asyncio.create_task(wire.exchange(("PING",), LONG_S))
        await asyncio.sleep(SHORT_S)
        theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError, match="lost"):
            await asked


async def test_no_reply_in_time() -> None:
    """Nobody waits for ever."""
    async with wired() as (wire, _, _theirs):
        with pytest.raises(TimeoutError):
            await wire.exchange(("PING",), SHORT_S)


async def test_an_error_leaves_no_circle() -> None:
    """What a broken connection leaves behind goes by itself, with all that its frames refer to."""
    async with wired() as (wire, _, _theirs):
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                with suppress(TimeoutError):
                    await wire.exchange(("PING",), 0.001)
            assert gc.collect() < 50
        finally:
            gc.enable()
