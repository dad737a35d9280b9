"""A gateway and workers for the tests of the scripts, and a short way to look into the lane."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from shared import consumer
from shared.keys import BULK, GROUP, INTERACTIVE, Keys
from shared.connection import Queue
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway, Worker
from tests.users import as_user

Hire = Callable[[str], Awaitable[Worker]]


@dataclass
class Lane:
    """What redis-cli would show of one lane of the queue, and of the counters of all."""

    client: redis.asyncio.Redis
    keys: Keys
    number: int = INTERACTIVE

    @property
    def name(self) -> str:
        """The key of the stream."""
        return self.keys.lanes[self.number]

    async def length(self) -> int:
        """How many entries are in it."""
        return int(await self.client.xlen(self.name))

    async def fields(self) -> list[dict[bytes, bytes]]:
        """The fields of each entry."""
        rows: Any = await self.client.xrange(self.name)
        return [dict(fields) for _, fields in rows]

    async def owners(self) -> dict[bytes, bytes]:
        """Who holds each pending entry, by entry id."""
        rows: Any = await self.client.xpending_range(self.name, GROUP, "-", "+", 10_000)
        return {row["message_id"]: row["consumer"] for row in rows}

    async def consumers(self) -> set[str]:
        """The names in the group."""
        rows: Any = await self.client.xinfo_consumers(self.name, GROUP)
        return {row["name"].decode() for row in rows}

    async def backlog(self) -> tuple[int, int]:
        """The counters: inputs and tokens."""
        load: Any = await self.client.execute_command("HMGET", self.keys.backlog, "inputs", "tokens")
        return int(load[0] or 0), int(load[1] or 0)

    async def bulk_tokens(self) -> int:
        """The counter of bulk."""
        return int(await self.client.execute_command("HGET", self.keys.backlog, "bulk_tokens") or 0)

    async def replies(self, request_id: str) -> list[bytes]:
        """The replies that lie ready for a request; they stay there."""
        found: Any = await self.client.execute_command("LRANGE", self.keys.reply(request_id), 0, -1)
        return list(found)


@asynccontextmanager
async def opened(redis_url: str, queue_name: str, user: str) -> AsyncIterator[Queue]:
    """The test's queue as a user sees it."""
    queue = Queue(QueueSettings(redis_url=as_user(redis_url, user)), queue_name, "test")
    yield queue
    await queue.close()


@pytest_asyncio.fixture
async def queue(redis_url: str, queue_name: str, request: pytest.FixtureRequest) -> AsyncIterator[Queue]:
    """The test's queue, for the user that its module PLAYS: a gateway, if that says nothing."""
    async with opened(redis_url, queue_name, getattr(request.module, "PLAYS", "gateway")) as queue:
        yield queue


@pytest_asyncio.fixture
async def front(redis_url: str, queue_name: str) -> AsyncIterator[Queue]:
    """The test's queue, for gateways."""
    async with opened(redis_url, queue_name, "gateway") as queue:
        yield queue


@pytest_asyncio.fixture
async def floor(redis_url: str, queue_name: str) -> AsyncIterator[Queue]:
    """The test's queue, for workers."""
    async with opened(redis_url, queue_name, "worker") as queue:
        yield queue


@pytest_asyncio.fixture
async def desk(redis_url: str, queue_name: str) -> AsyncIterator[Queue]:
    """The test's queue, for who looks after it."""
    async with opened(redis_url, queue_name, "admin") as queue:
        yield queue


@pytest.fixture
def gateway(front: Queue) -> Gateway:
    """A gateway with a link of its own."""
    return Gateway(front.link("submit"), front.keys)


@pytest.fixture
def lane(raw: redis.asyncio.Redis, keys: Keys) -> Lane:
    """The interactive lane as Redis shows it."""
    return Lane(raw, keys)


@pytest.fixture
def bulk_lane(raw: redis.asyncio.Redis, keys: Keys) -> Lane:
    """The lane bulk as Redis shows it."""
    return Lane(raw, keys, BULK)


@pytest_asyncio.fixture
async def hire(floor: Queue) -> AsyncIterator[Hire]:
    """Makes workers by name, each with a link of its own. After the test they leave, and must owe nothing."""
    hired: list[Worker] = []

    async def hire(name: str) -> Worker:
        worker = Worker(floor.link(name), floor.keys, name)
        await consumer.join(worker.link, floor.keys)
        hired.append(worker)
        return worker

    yield hire
    owed = {worker.name: await worker.leave() for worker in hired}
    assert {name: count for name, count in owed.items() if count} == {}


@pytest_asyncio.fixture
async def worker(hire: Hire) -> Worker:
    """A worker in the group."""
    return await hire("worker-1")


@pytest_asyncio.fixture
async def other(hire: Hire) -> Worker:
    """Another worker in the group."""
    return await hire("worker-2")
