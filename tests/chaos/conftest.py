"""Fixtures with the clusters that faults are injected into; `make chaos` injects more of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio
import redis.asyncio

from shared import api_keys
from shared.connection import QueueConnections
from tests.chaos.attack import new_tenant
from tests.chaos.report import FAULT
from tests.chaos.scenario import Figures, Scenario
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.proxy import FaultProxy
from tests.servers import Server

NewKey = Callable[[], Awaitable[str]]


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Returns whether this is the long run (`make chaos`)."""
    return "slow" in request.config.getoption("markexpr")


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> Iterator[list[Figures]]:
    """Yields the list for the figures of the test's scenarios, which the table at the end of the run shows."""
    rows: list[Figures] = []
    yield rows
    # of plain types: the processes of a parallel run send them to each other
    plain = [
        {name: dict(value) if isinstance(value, Counter) else value for name, value in row.items()} for row in rows
    ]
    request.node.user_properties.extend((FAULT, row) for row in plain)


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Yields processes for this test only, on its queue; they end before the proxy that some of them use."""
    assert proxy.url
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def new_key(queue: QueueConnections, redis_url: str) -> AsyncIterator[NewKey]:
    """Yields a function that adds an API key of a new tenant, for gateways on the session's Redis."""
    secrets: list[str] = []

    async def create() -> str:
        secrets.append(await new_tenant(redis_url))
        return secrets[-1]

    yield create
    for secret in secrets:
        await api_keys.remove(queue.connection("keys"), secret.partition(".")[0])


@pytest_asyncio.fixture
async def api_key(new_key: NewKey) -> str:
    """Returns an API key for gateways on the session's Redis."""
    return await new_key()


def may_leave_keys(request: pytest.FixtureRequest) -> bool:
    """Returns whether the test may leave keys and processes behind."""
    return request.node.get_closest_marker("leaves_anything") is not None


@pytest_asyncio.fixture
async def scenario(
    cluster: GatewayCluster,
    raw: redis.asyncio.Redis,
    thorough: bool,
    rows: list[Figures],
    request: pytest.FixtureRequest,
) -> AsyncIterator[Scenario]:
    """Yields a cluster on the session's Redis."""
    scenario = Scenario(cluster, raw, thorough, rows)
    yield scenario
    if not may_leave_keys(request):
        assert not scenario.crash_logs()
        await (
            scenario.wait_until_drained()
        )  # of what was submitted twice, one may still be there when all have been answered


@pytest_asyncio.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    """Yields a proxy between a program and the session's Redis."""
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def own_redis(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yields a Redis that a test may kill, stop and fill; parametrize it with arguments of redis-server."""
    options: list[str] = getattr(request, "param", [])
    with Server(options=options) as server:
        yield server


@pytest_asyncio.fixture
async def own_scenario(
    own_redis: Server,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Scenario]:
    """Yields a cluster on `own_redis`, which must be empty at the end."""
    url = own_redis.url
    async with redis.asyncio.Redis.from_url(url, protocol=2) as raw:
        async with Processes(tmp_path_factory.mktemp("own")) as processes:
            cluster = GatewayCluster(processes, url, queue_name)
            scenario = Scenario(cluster, raw, thorough, rows)
            yield scenario
            if not may_leave_keys(request):
                assert not scenario.crash_logs()
                await scenario.wait_until_drained()
        if not may_leave_keys(request):
            cluster.check_leaks(uploads=True)
