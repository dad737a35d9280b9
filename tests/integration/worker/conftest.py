"""The cluster of a test: its queue, and the workers that it starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
import redis.asyncio

from shared import consumer
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway
from tests.integration.worker.worker_cluster import WorkerCluster
from tests.processes import Processes
from tests.users import as_user


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue: QueueConnections, raw: redis.asyncio.Redis, tmp_path: Path, leaves_nothing: None
) -> AsyncIterator[WorkerCluster]:
    """A queue with its group; the test starts workers, which end with it."""
    connection = queue.connection("look")
    gateway_queue = QueueConnections(QueueSettings(redis_url=as_user(redis_url, "gateway")), queue.keys.queue, "test")
    await consumer.join(connection, queue.keys)
    async with Processes(tmp_path) as processes:
        yield WorkerCluster(
            redis_url, processes, queue, raw, connection, Gateway(gateway_queue.connection("submit"), queue.keys)
        )
    await gateway_queue.close()
