"""The wire to Redis, beyond the tests of a connection: replies in pieces, unrequested replies, and invalid data."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import hiredis
import pytest

from shared.redis_wire import Wire

LONG_S = 10.0
SHORT_S = 0.05


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[Wire, asyncio.Transport, socket.socket]]:
    """A wire, its transport, and the other end of the socket."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    theirs.setblocking(False)
    with theirs:
        yield Wire(transport), transport, theirs
        transport.close()


async def ping(wire: Wire, theirs: socket.socket, answer: Sequence[bytes]) -> object:
    """Sends PING, sends these pieces back, and returns the reply."""
    exchange = asyncio.create_task(wire.exchange_all([("PING",)], LONG_S))
    assert await asyncio.get_running_loop().sock_recv(theirs, 100) == b"*1\r\n$4\r\nPING\r\n"
    for piece in answer:
        theirs.send(piece)
        await asyncio.sleep(0)
    return (await exchange)[0]


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
    """A reply is complete, wherever it is cut."""
    async with wired() as (wire, _, theirs):
        assert await ping(wire, theirs, pieces) == reply
        assert await ping(wire, theirs, [b"+next\r\n"]) == b"next"


async def test_an_error_reply_is_a_value() -> None:
    """After an error reply the connection still works; the caller interprets the error."""
    async with wired() as (wire, _, theirs):
        reply = await ping(wire, theirs, [b"-NOGROUP no such group\r\n"])
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply) == "NOGROUP no such group"
        assert await ping(wire, theirs, [b"+next\r\n"]) == b"next"


async def test_several_commands_at_once() -> None:
    """Replies come in order, wherever they are cut; an error is the reply to one command only."""
    async with wired() as (wire, transport, theirs):
        exchange = asyncio.create_task(wire.exchange_all([("PING",), ("LPOP", "a", 2), ("PING",)], LONG_S))
        sent = b"*1\r\n$4\r\nPING\r\n"
        expected = sent + b"*3\r\n$4\r\nLPOP\r\n$1\r\na\r\n$1\r\n2\r\n" + sent
        assert await asyncio.get_running_loop().sock_recv(theirs, 100) == expected
        for piece in (b"+PO", b"NG\r\n-WRONG", b"TYPE\r\n+la", b"st\r\n"):
            theirs.send(piece)
            await asyncio.sleep(SHORT_S)
        first, error, last = await exchange
        assert (first, last) == (b"PONG", b"last")
        assert isinstance(error, hiredis.ReplyError)
        assert await ping(wire, theirs, [b"+next\r\n"]) == b"next"
        assert not transport.is_closing()


async def test_one_reply_of_several_is_not_enough() -> None:
    """An exchange of two commands does not return with one reply."""
    async with wired() as (wire, _, theirs):
        exchange = asyncio.create_task(wire.exchange_all([("PING",), ("PING",)], SHORT_S))
        await asyncio.sleep(0)
        theirs.send(b"+PONG\r\n")
        with pytest.raises(TimeoutError):
            await exchange


async def test_what_is_no_reply_breaks_the_connection() -> None:
    """Invalid data breaks the connection."""
    async with wired() as (wire, _, theirs):
        with pytest.raises(ConnectionError, match="no reply"):
            await ping(wire, theirs, [b"HTTP/1.1 400 Bad Request\r\n\r\n"])


@pytest.mark.parametrize("requested", [False, True])
async def test_an_unrequested_reply_closes_the_connection(requested: bool) -> None:
    """An unrequested reply, alone or behind another, closes the connection: later replies could not be assigned."""
    async with wired() as (wire, transport, theirs):
        if requested:
            assert await ping(wire, theirs, [b"+PONG\r\n+unrequested\r\n"]) == b"PONG"
        else:
            theirs.send(b"+unrequested\r\n")
        await asyncio.sleep(SHORT_S)
        assert transport.is_closing()
        with pytest.raises(ConnectionError, match="not connected"):
            await wire.exchange_all([("PING",)], LONG_S)


async def test_a_connection_that_is_lost_meanwhile() -> None:
    """A waiting call fails at once when the connection is lost."""
    async with wired() as (wire, _, theirs):
        exchange = asyncio.create_task(wire.exchange_all([("PING",)], LONG_S))
        await asyncio.sleep(SHORT_S)
        theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError, match="lost"):
            await exchange


async def test_no_reply_in_time() -> None:
    """A call without a reply ends by its timeout."""
    async with wired() as (wire, _, _theirs):
        with pytest.raises(TimeoutError):
            await wire.exchange_all([("PING",)], SHORT_S)


async def test_each_call_has_its_own_timeout() -> None:
    """Whether it ends before or after that of the call before it, whose timer may still run."""
    loop = asyncio.get_running_loop()
    async with wired() as (wire, _, theirs):
        for before_s, timeout_s in ((LONG_S, SHORT_S), (SHORT_S, 4 * SHORT_S)):
            exchange = asyncio.create_task(wire.exchange_all([("PING",)], before_s))
            await loop.sock_recv(theirs, 100)
            theirs.send(b"+PONG\r\n")
            await exchange
            began = loop.time()
            with pytest.raises(TimeoutError):
                await wire.exchange_all([("PING",)], timeout_s)
            assert timeout_s - 0.002 <= loop.time() - began < LONG_S / 2
            await loop.sock_recv(theirs, 100)


async def test_an_error_leaves_no_reference_cycle() -> None:
    """A broken connection leaves no reference cycle, which would keep its frames alive."""
    async with wired() as (wire, _, _theirs):
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                with suppress(TimeoutError):
                    await wire.exchange_all([("PING",)], 0.001)
            assert gc.collect() < 50
        finally:
            gc.enable()
