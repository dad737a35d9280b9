"""A link on the event loop that gateways and workers run on, which tells of a lost connection in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from shared.errors import RedisUnreachable
from shared.connection import Link, Queue
from shared.settings import QueueSettings
from tests.proxy import FaultProxy

pytestmark = pytest.mark.redis

SETTLED_S = 0.1


async def _after_a_reset(redis_url: str, queue_name: str, ask: Callable[[Link], Awaitable[object]]) -> None:
    async with FaultProxy(redis_url) as proxy:
        queue = Queue(QueueSettings(redis_url=proxy.url), queue_name, "far")
        link = queue.link("idle")
        await link.ping()
        proxy.cut()
        await asyncio.sleep(SETTLED_S)
        await ask(link)
    await asyncio.sleep(SETTLED_S)
    with pytest.raises(RedisUnreachable):
        await ask(link)
    await queue.close()


@pytest.mark.parametrize("ask", [Link.ping, lambda link: link.pop("nothing", 0.01)], ids=["ping", "pop"])
def test_a_connection_that_was_reset_while_nobody_used_it(
    redis_url: str, queue_name: str, ask: Callable[[Link], Awaitable[object]]
) -> None:
    """Nothing is lost with it, so nobody hears of it: the next call has a new one, if Redis can be reached."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_after_a_reset(redis_url, queue_name, ask))


async def _answer_and_hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says at once what comes last in connecting, and that nothing more will come; hears all the same."""
    writer.write(b"+OK\r\n")
    writer.write_eof()
    await reader.read()
    writer.close()


async def _with_one_that_hangs_up() -> None:
    server = await asyncio.start_server(_answer_and_hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    queue = Queue(QueueSettings(redis_url=f"redis://127.0.0.1:{port}", redis_timeout_s=20), "q", "far")
    async with server, asyncio.timeout(10):
        with pytest.raises(RedisUnreachable):
            await queue.link("brief").ping()
        await queue.close()


def test_a_connection_that_is_closed_as_soon_as_it_is_there() -> None:
    """Its end is seen, though it came while redis-py had not handed it over yet: nobody waits for an answer."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_with_one_that_hangs_up())
