"""RedisConnection on uvloop, the event loop of gateways and workers, which reports a lost connection differently."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf

import pytest
import uvloop

from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

RESET_SEEN_S = 0.1
CONNECTS, MAX_DELAY_S = 1_000, 0.001


async def _after_a_reset(redis_url: str, queue_name: str, call: Callable[[RedisConnection], Awaitable[object]]) -> None:
    async with FaultProxy(redis_url) as proxy:
        queue = QueueConnections(QueueSettings(redis_url=proxy.url), queue_name, "far")
        connection = queue.connection("idle")
        await connection.ping()
        proxy.cut()
        await wait_until(lambda: connection.answered_at == -inf, "the reset is seen")
        await call(connection)
    await wait_until(lambda: connection.answered_at == -inf, "the end of the proxy is seen")
    with pytest.raises(RedisUnreachableError):
        await call(connection)
    await queue.close()


@pytest.mark.parametrize(
    "call", [RedisConnection.ping, lambda connection: connection.pop("nothing", 0.01)], ids=["ping", "pop"]
)
def test_a_connection_that_was_reset_while_idle(
    redis_url: str, queue_name: str, call: Callable[[RedisConnection], Awaitable[object]]
) -> None:
    """No reply is lost with it, so no call fails: the next call opens a new connection, if Redis can be reached."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_after_a_reset(redis_url, queue_name, call))


async def _answer_and_hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends the last reply of connecting and then EOF at once, but still reads."""
    writer.write(b"+OK\r\n")
    writer.write_eof()
    await reader.read()
    writer.close()


async def _ping_a_closing_server() -> None:
    server = await asyncio.start_server(_answer_and_hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    queue = QueueConnections(QueueSettings(redis_url=f"redis://127.0.0.1:{port}", redis_timeout_s=20), "q", "far")
    async with server, asyncio.timeout(10):
        with pytest.raises(RedisUnreachableError):
            await queue.connection("brief").ping()
        await queue.close()


def test_a_connection_that_is_closed_as_soon_as_it_is_there() -> None:
    """EOF that arrives before redis-py hands the connection over is noticed: the call fails without a wait."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_ping_a_closing_server())


def _reset_connections(listener: socket.socket) -> None:
    """Resets connections soon after they are made, as a proxy does without a server behind it, until it is closed."""
    linger = struct.pack("ii", 1, 0)
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            time.sleep(random.random() * MAX_DELAY_S)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()


async def _ping_often(url: str) -> None:
    queue = QueueConnections(QueueSettings(redis_url=url, redis_timeout_s=20), "q", "far")
    for _ in range(CONNECTS):
        with pytest.raises(RedisUnreachableError):
            await queue.connection("brief").ping()
    await queue.close()


def test_a_connection_that_is_reset_while_it_is_made() -> None:
    """The call fails as at any other time, though uvloop raises another error if the reset comes before a command."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_reset_connections, args=[listener], daemon=True).start()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_ping_often(f"redis://127.0.0.1:{listener.getsockname()[1]}"))
        listener.shutdown(socket.SHUT_RDWR)


async def _read_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers nothing."""
    with suppress(OSError):
        await reader.read()
    writer.close()


async def _reset_twice() -> None:
    async with await asyncio.start_server(_read_only, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        settings = QueueSettings(redis_url=f"redis://:password@127.0.0.1:{port}", redis_timeout_s=20)
        queue = QueueConnections(settings, "q", "far")
        connection = queue.connection("slow")
        opening = asyncio.create_task(connection.ping())
        await asyncio.sleep(RESET_SEEN_S)
        connection.reset()
        await asyncio.sleep(0)
        connection.reset()
        with pytest.raises(RedisUnreachableError):
            await opening
        await queue.close()


def test_a_connection_that_is_reset_again_while_it_is_made() -> None:
    """The second reset finds one that is ending."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_reset_twice())
