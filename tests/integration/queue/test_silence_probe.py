"""The probe that finds out whether the address of Redis leads elsewhere while old connections hang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.silence_probe import LEAD_S, UNREACHABLE_AFTER_S, SilenceProbe
from tests.proxy import FaultProxy, ReplyAction
from tests.servers import Server, stopped
from tests.several_redis import follow, promote

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

LONG_S = 60.0


@dataclass
class Process:
    """The connections of a process: one for its watched call, and one on which it waits for something."""

    proxy: FaultProxy
    queue: QueueConnections
    connection: RedisConnection
    probe: SilenceProbe
    waiting: asyncio.Task[object]

    async def call(self) -> object:
        """Sends the watched call."""
        async with self.probe.watch():
            return await self.connection.call("PING")

    async def has_reset(self) -> bool:
        """Whether the connection on which it waits was reset, which is seen at once."""
        await asyncio.sleep(0.1)
        return self.waiting.done() and isinstance(self.waiting.exception(), RedisUnreachableError)


@pytest.fixture
def old() -> Iterator[Server]:
    """The Redis to which the address leads at first."""
    with Server() as server:
        yield server


@pytest.fixture
def timeout_s() -> float:
    """The timeout of a call: long, so that no stall of the machine ends one before it is noticed by its silence."""
    return 20.0


@pytest_asyncio.fixture
async def process(old: Server, queue_name: str, timeout_s: float) -> AsyncIterator[Process]:
    """A process that has found Redis, and waits for an element of a list that never comes."""
    async with FaultProxy(old.url) as proxy:
        settings = QueueSettings(redis_url=proxy.url, redis_timeout_s=timeout_s)
        queue = QueueConnections(settings, queue_name, "test")
        caller = queue.connection("caller")
        probe = SilenceProbe(queue, caller, lambda connection: connection.call("PING"))
        waiting = queue.connection("waiter")
        await waiting.ping()
        task = asyncio.create_task(waiting.call("BLPOP", queue.keys.reply("nobody"), "0", block_s=LONG_S))
        process = Process(proxy, queue, caller, probe, task)
        assert await process.call() == b"PONG"
        yield process
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await queue.close()


async def test_all_connections_are_reset_if_only_a_new_one_is_answered(
    process: Process, old: Server, timeout_s: float
) -> None:
    """The watched call fails before its timeout, and the next one reaches the server that has taken over."""
    with Server() as new:
        await follow(new, old)
        await process.connection.check_home()  # as gateways and workers do each second
        await promote(new)
        process.proxy.lead_to(new.url)
        with stopped(old):
            began = time.monotonic()
            with pytest.raises(RedisUnreachableError):
                await process.call()
            assert UNREACHABLE_AFTER_S < time.monotonic() - began < timeout_s
            assert await process.has_reset()
            assert await process.call() == b"PONG"


@pytest.mark.parametrize("timeout_s", [2.5])
async def test_all_connections_are_reset_after_a_silent_call_failed(process: Process) -> None:
    """If nothing is answered for longer than the timeout, what the network swallowed is not waited for."""
    process.proxy.silent = True
    with pytest.raises(RedisUnreachableError):
        await process.call()
    assert not await process.has_reset()
    process.proxy.silent = False
    assert await process.call() == b"PONG"
    assert await process.has_reset()


@pytest.mark.parametrize("timeout_s", [2.5])
async def test_the_call_after_a_timeout_is_probed_at_once(process: Process) -> None:
    """The silence has lasted long enough: if the address leads elsewhere meanwhile, that is noticed sooner."""
    process.proxy.silent = True
    with pytest.raises(RedisUnreachableError):
        await process.call()
    began = time.monotonic()
    call = asyncio.create_task(process.call())
    await asyncio.sleep(0.1)
    process.proxy.silent = False
    with pytest.raises(RedisUnreachableError):
        await call
    assert time.monotonic() - began < UNREACHABLE_AFTER_S + LEAD_S


async def test_nothing_is_reset_if_redis_is_only_slow(process: Process, old: Server) -> None:
    """A new connection is not answered either, and the old call is answered first."""
    for _ in range(3):
        with stopped(old):
            call = asyncio.create_task(process.call())
            await asyncio.sleep(UNREACHABLE_AFTER_S + 0.2)
        assert await call == b"PONG"
        assert not await process.has_reset()


async def test_nothing_is_reset_after_a_call_that_failed_at_once(process: Process) -> None:
    """A connection that was reset says so by itself, and so do the others."""
    process.proxy.set_next_actions(ReplyAction.CUT)
    with pytest.raises(RedisUnreachableError):
        await process.call()
    assert await process.call() == b"PONG"
    assert not await process.has_reset()
