"""Fixtures of the tests of `redbatch embed`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.connection import RedisConnection
from shared.keys import API_KEYS
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Gateways and workers of this test, on the queue of this test."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def connection(redis_url: str, queue_name: str) -> AsyncIterator[RedisConnection]:
    """A connection to Redis, without API keys before and after the test."""
    queue = QueueConnections(QueueSettings(redis_url=redis_url), queue_name, "test")
    connection = queue.connection("keys")
    await connection.call("DEL", API_KEYS)
    yield connection
    await connection.call("DEL", API_KEYS)
    await queue.close()
