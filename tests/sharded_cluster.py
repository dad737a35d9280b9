"""Several Redis, each with a shard of one queue, and the gateways and workers around them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import redis.asyncio

from shared import consumer
from shared.messages import READY, Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, log_lines
from tests.processes import Processes, Program
from tests.servers import Server
from tests.waiting import wait_until


@dataclass
class ShardedCluster:
    """A cluster of several Redis; `clients` and `servers` are in the order of the shards."""

    cluster: GatewayCluster
    servers: Sequence[Server]
    clients: Sequence[redis.asyncio.Redis]

    @property
    def urls(self) -> str:
        """The setting `redis_shards`."""
        return ",".join(each.url for each in self.servers)

    def settings(self, num_shards: int | None = None) -> dict[str, object]:
        """Returns the settings of a process of the first shards, or of all."""
        urls = [each.url for each in self.servers[:num_shards]]
        return {"redis_url": urls[0]} if len(urls) == 1 else {"redis_url": None, "redis_shards": ",".join(urls)}

    async def start_gateway(self, num_shards: int | None = None, /, **settings: object) -> GatewayProcess:
        """Starts a gateway of the first shards, or of all."""
        return await self.cluster.start_gateway(**self.settings(num_shards) | settings)

    async def start_worker(self, model: str = "null", num_shards: int | None = None, **settings: object) -> Program:
        """Starts a worker of the first shards, or of all."""
        return await self.cluster.start_worker(model, **self.settings(num_shards) | settings)

    async def start_worker_of(self, shard: int, model: str = "null", **settings: object) -> Program:
        """Starts a worker of one shard."""
        return await self.cluster.start_worker(model, redis_url=self.servers[shard].url, **settings)

    async def add_ghosts(self, **properties: int) -> None:
        """Sends the heartbeat of a worker to each shard that never takes an entry: gateways accept requests."""
        beat = replace(Heartbeat("ghost", "host", 1, "cpu", "null", 384, READY, 0.0, 0, 0, 0), **properties)  # type: ignore[arg-type]
        for server in self.servers:
            queue = QueueConnections(QueueSettings(redis_url=server.url), self.cluster.queue, "test")
            await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
            await queue.close()

    async def remove_ghost(self, shard: int) -> None:
        """Removes the worker that `add_ghosts` has added to a shard."""
        queue = QueueConnections(QueueSettings(redis_url=self.servers[shard].url), self.cluster.queue, "test")
        await consumer.leave(queue.connection("ghost"), queue.keys, "ghost")
        await queue.close()

    async def kill(self, shard: int) -> None:
        """Kills the Redis of a shard (SIGKILL)."""
        os.kill(self.servers[shard].pid, signal.SIGKILL)

    async def restart(self, shard: int) -> None:
        """Starts a Redis that was killed; it is empty."""
        await asyncio.to_thread(self.servers[shard].start)


async def wait_until_used(gateways: Sequence[GatewayProcess], shards: Sequence[int]) -> None:
    """Waits until gateways use these shards alone."""

    def used() -> bool:
        return all(_shards_in_use(each.program) == list(shards) for each in gateways)

    await wait_until(used, f"the gateways use the shards {list(shards)}", timeout_s=20, poll_s=0.05)


def _shards_in_use(gateway: Program) -> list[int]:
    """Returns the numbers of the shards that take requests, as a gateway has logged them last."""
    logged = [line["shards"] for line in log_lines(gateway) if line["msg"] == "shards that take requests"]
    return list(logged[-1]) if logged else []


@asynccontextmanager
async def sharded_cluster(num_shards: int, queue: str, folder: Path) -> AsyncIterator[ShardedCluster]:
    """Yields a cluster with this number of Redis, and no processes yet."""
    async with AsyncExitStack() as stack:
        servers = [Server() for _ in range(num_shards)]
        for server in servers:
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        clients = [
            await stack.enter_async_context(redis.asyncio.Redis.from_url(each.url, protocol=2)) for each in servers
        ]
        processes = await stack.enter_async_context(Processes(folder))
        yield ShardedCluster(GatewayCluster(processes, servers[0].url, queue), servers, clients)
