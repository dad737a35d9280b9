"""A queue of two shards, each in its own Redis, and the workers that a test starts on it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis.asyncio

from shared import consumer
from shared.messages import Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway
from tests.integration.worker.worker_cluster import PendingRequest, WorkerCluster
from tests.processes import Processes, Program, heartbeat_of
from tests.servers import Server
from tests.users import as_user


@dataclass
class ShardedCluster:
    """The surroundings of a worker that serves several shards.

    Attributes:
        servers: the Redis of each shard.
        shards: each shard as a queue, with its gateway.
        processes: starts the workers.
        workers: the programs that were started.
    """

    servers: list[Server]
    shards: list[WorkerCluster]
    processes: Processes
    workers: list[Program] = field(default_factory=list)

    async def start_worker(self, model: str = "null", *, served: Sequence[int] = (0, 1), **settings: object) -> Program:
        """Starts a worker, with settings by their names; waits until these shards have its heartbeat."""
        env = {f"REDBATCH_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"REDBATCH_REDIS_SHARDS": ",".join(server.url for server in self.servers)}
        env |= {"REDBATCH_QUEUE": self.shards[0].keys.queue, "REDBATCH_MODEL": model, "REDBATCH_ADMIN_PORT": "0"}

        async def is_ready(program: Program) -> bool:
            beats = [await self.beat(program, number) for number in served]
            return all(beat is not None and beat.state == "ready" for beat in beats)

        program = await self.processes.start(f"worker{len(self.workers)}", "gpuworker", env, is_ready)
        self.workers.append(program)
        return program

    async def beat(self, program: Program, shard: int) -> Heartbeat | None:
        """Returns the last heartbeat of a worker in a shard."""
        return await heartbeat_of(program, self.shards[shard].connection, self.shards[shard].keys)

    async def submit_to_each(self, *texts: str) -> list[list[PendingRequest]]:
        """Submits requests of one text each to each shard; the texts differ between shards."""
        return [
            await shard.submit_many([[f"{text} of shard {number}"] for text in texts])
            for number, shard in enumerate(self.shards)
        ]

    async def check_replies(self, requests: Sequence[Sequence[PendingRequest]]) -> None:
        """Waits for the replies in each shard, and checks them."""
        for shard, of_shard in zip(self.shards, requests, strict=True):
            await shard.check_replies(of_shard)

    def kill_redis(self, shard: int) -> None:
        """Kills a Redis (SIGKILL), which loses all its data."""
        os.kill(self.servers[shard].pid, signal.SIGKILL)

    def address(self, shard: int) -> str:
        """Returns the host and port of a Redis, as logs name it."""
        return f"127.0.0.1:{self.servers[shard].port}"


@asynccontextmanager
async def sharded_cluster(queue_name: str, folder: Path, num_shards: int = 2) -> AsyncIterator[ShardedCluster]:
    """Starts the servers, each with the group of the queue; at the end stops the workers, then these."""
    async with AsyncExitStack() as stack:
        servers = [stack.enter_context(Server()) for _ in range(num_shards)]
        shards = []
        processes = Processes(folder)
        for server in servers:
            queue = QueueConnections(QueueSettings(redis_url=server.url), queue_name, "test")
            of_gateway = QueueConnections(QueueSettings(redis_url=as_user(server.url, "gateway")), queue_name, "test")
            stack.push_async_callback(queue.close)
            stack.push_async_callback(of_gateway.close)
            raw = await stack.enter_async_context(redis.asyncio.Redis.from_url(server.url, protocol=2))
            connection = queue.connection("look")
            await consumer.join(connection, queue.keys)
            gateway = Gateway(of_gateway.connection("submit"), queue.keys)
            shards.append(WorkerCluster(server.url, processes, queue, raw, connection, gateway))
        await stack.enter_async_context(processes)
        yield ShardedCluster(servers, shards, processes)
