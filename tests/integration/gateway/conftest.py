"""A gateway and a null worker for a whole module, and clusters whose processes a test starts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from shared import api_keys, consumer
from shared.messages import Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import NO_QUOTA, Quota
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, shared_gateway
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until

READY_S = 20.0
NewKey = Callable[..., Coroutine[Any, Any, str]]


@pytest.fixture(scope="module")
def served(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a null worker behind it, shared by the tests of a module."""
    cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("served")), redis_url, f"served-{uuid.uuid4().hex[:8]}")

    async def start() -> GatewayProcess:
        gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=READY_S)
        return gateway

    with shared_gateway(cluster, start) as gateway:
        yield gateway


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """A cluster around the test's queue, without processes."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client with an unlimited number of connections."""
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        yield client


@pytest_asyncio.fixture
async def fake_heartbeat(queue: QueueConnections) -> None:
    """Sends one heartbeat of a worker that does not exist, so that gateways accept requests that no worker serves."""
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)


@pytest.fixture
def own_redis() -> Iterator[Server]:
    """A Redis that the test may stop and start; it starts empty, on the same port."""
    with Server() as server:
        yield server


@pytest_asyncio.fixture
async def isolated_cluster(
    own_redis: Server, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """A cluster around a queue in `own_redis`, without processes."""
    async with Processes(tmp_path_factory.mktemp("isolated")) as processes:
        yield GatewayCluster(processes, own_redis.url, queue_name)


@pytest_asyncio.fixture
async def new_key(isolated_cluster: GatewayCluster) -> AsyncIterator[NewKey]:
    """Creates an API key of a new tenant with a quota."""
    queue = QueueConnections(QueueSettings(redis_url=isolated_cluster.redis_url), isolated_cluster.queue, "test")

    async def create(quota: Quota = NO_QUOTA) -> str:
        key, secret = api_keys.new_key(("embed", "jobs"), quota=quota)
        await api_keys.add(queue.connection("keys"), key)
        return secret

    yield create
    await queue.close()
