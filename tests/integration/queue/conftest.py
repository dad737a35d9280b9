"""A gateway and workers for the tests of the scripts, and a view of a lane."""

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
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway, Worker
from tests.users import as_user

CreateWorker = Callable[[str], Awaitable[Worker]]


@dataclass
class Lane:
    """One lane of the queue as redis-cli would show it, and the counters of all lanes."""

    client: redis.asyncio.Redis
    keys: Keys
    number: int = INTERACTIVE

    @property
    def name(self) -> str:
        """The key of the stream."""
        return self.keys.lanes[self.number]

    async def length(self) -> int:
        """The number of entries."""
        return int(await self.client.xlen(self.name))

    async def fields(self) -> list[dict[bytes, bytes]]:
        """The fields of each entry."""
        rows: Any = await self.client.xrange(self.name)
        return [dict(fields) for _, fields in rows]

    async def owners(self) -> dict[bytes, bytes]:
        """The consumer of each pending entry, by entry id."""
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
        """The counter of tokens in bulk."""
        return int(await self.client.execute_command("HGET", self.keys.backlog, "bulk_tokens") or 0)

    async def replies(self, request_id: str) -> list[bytes]:
        """The replies that are ready for a request, without popping them."""
        found: Any = await self.client.execute_command("LRANGE", self.keys.reply(request_id), 0, -1)
        return list(found)


@asynccontextmanager
async def open_queue(redis_url: str, queue_name: str, user: str) -> AsyncIterator[QueueConnections]:
    """Yields the test's queue, as this Redis user. A loaded machine may take seconds to move 64 MiB."""
    settings = QueueSettings(redis_url=as_user(redis_url, user), redis_timeout_s=20)
    queue = QueueConnections(settings, queue_name, "test")
    yield queue
    await queue.close()


@pytest_asyncio.fixture
async def queue(redis_url: str, queue_name: str, request: pytest.FixtureRequest) -> AsyncIterator[QueueConnections]:
    """The test's queue, as the Redis user that USER names in its module; by default a gateway."""
    async with open_queue(redis_url, queue_name, getattr(request.module, "USER", "gateway")) as queue:
        yield queue


@pytest_asyncio.fixture
async def gateway_queue(redis_url: str, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The test's queue, as the Redis user of gateways."""
    async with open_queue(redis_url, queue_name, "gateway") as queue:
        yield queue


@pytest_asyncio.fixture
async def worker_queue(redis_url: str, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The test's queue, as the Redis user of workers."""
    async with open_queue(redis_url, queue_name, "worker") as queue:
        yield queue


@pytest_asyncio.fixture
async def admin_queue(redis_url: str, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The test's queue, as the Redis user of administrators."""
    async with open_queue(redis_url, queue_name, "admin") as queue:
        yield queue


@pytest.fixture
def gateway(gateway_queue: QueueConnections) -> Gateway:
    """A gateway with a separate connection."""
    return Gateway(gateway_queue.connection("submit"), gateway_queue.keys)


@pytest.fixture
def lane(raw: redis.asyncio.Redis, keys: Keys) -> Lane:
    """The interactive lane, as Redis shows it."""
    return Lane(raw, keys)


@pytest.fixture
def bulk_lane(raw: redis.asyncio.Redis, keys: Keys) -> Lane:
    """The bulk lane, as Redis shows it."""
    return Lane(raw, keys, BULK)


@pytest_asyncio.fixture
async def create_worker(worker_queue: QueueConnections) -> AsyncIterator[CreateWorker]:
    """Creates workers by name, each with a separate connection. After the test they leave, and must owe nothing."""
    workers: list[Worker] = []

    async def create_worker(name: str) -> Worker:
        worker = Worker(worker_queue.connection(name), worker_queue.keys, name)
        await consumer.join(worker.connection, worker_queue.keys)
        workers.append(worker)
        return worker

    yield create_worker
    owed = {worker.name: await worker.leave() for worker in workers}
    assert {name: count for name, count in owed.items() if count} == {}


@pytest_asyncio.fixture
async def worker(create_worker: CreateWorker) -> Worker:
    """A worker in the group."""
    return await create_worker("worker-1")


@pytest_asyncio.fixture
async def other(create_worker: CreateWorker) -> Worker:
    """A second worker in the group."""
    return await create_worker("worker-2")
