"""Fixtures with the clusters that faults are injected into; `make chaos` injects more of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial

import pytest
import pytest_asyncio
import redis.asyncio

from shared import api_keys
from shared.queue_connections import QueueConnections
from tests.chaos.attack import new_tenant
from tests.chaos.report import FAULT
from tests.chaos.scenario import Figures, Scenario
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.operations import EMBED, Operation
from tests.processes import Processes
from tests.proxy import FaultProxy
from tests.servers import Server

NewKey = Callable[[], Awaitable[str]]
NewScenario = Callable[..., Scenario]


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


@pytest.fixture
def operation(request: pytest.FixtureRequest) -> Operation:
    """Returns what the load of `scenario` and `own_scenario` requests: see `on_operations`."""
    operation: Operation = getattr(request, "param", EMBED)
    return operation


@pytest.fixture
def num_shards(request: pytest.FixtureRequest) -> int:
    """Returns the number of shards of the queue in `scenario` and `own_scenario`: see `on_shards`."""
    return int(getattr(request, "param", 1))


def start_servers(number: int, options: Sequence[str] = ()) -> Iterator[list[Server]]:
    """Yields the Redis of further shards."""
    with ExitStack() as stack:
        yield [stack.enter_context(Server(options=options)) for _ in range(number)]


@pytest.fixture
def further_redis(num_shards: int) -> Iterator[list[Server]]:
    """Yields the Redis of all shards in `scenario` but the first, which is on the session's."""
    yield from start_servers(num_shards - 1)


@pytest_asyncio.fixture
async def cluster(
    redis_url: str,
    queue_name: str,
    proxy: FaultProxy,
    further_redis: list[Server],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[GatewayCluster]:
    """Yields processes for this test only, on its queue; they end before the proxy that some of them use."""
    assert proxy.url
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name, [each.url for each in further_redis])


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


@asynccontextmanager
async def clients_of(urls: Sequence[str]) -> AsyncIterator[list[redis.asyncio.Redis]]:
    """Yields a client of each Redis."""
    async with AsyncExitStack() as stack:
        clients = [redis.asyncio.Redis.from_url(each, protocol=2) for each in urls]
        yield [await stack.enter_async_context(each) for each in clients]


def may_leave_keys(request: pytest.FixtureRequest) -> bool:
    """Returns whether the test may leave keys and processes behind."""
    return request.node.get_closest_marker("leaves_anything") is not None


@pytest.fixture
def new_scenario(thorough: bool, rows: list[Figures], operation: Operation) -> NewScenario:
    """Returns a function that makes a scenario of a cluster and a client of its Redis."""
    return partial(Scenario, thorough=thorough, rows=rows, operation=operation)


@pytest_asyncio.fixture
async def scenario(
    cluster: GatewayCluster,
    raw: redis.asyncio.Redis,
    new_scenario: NewScenario,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Scenario]:
    """Yields a cluster on the session's Redis."""
    async with clients_of(cluster.further_urls) as further_shards:
        scenario = new_scenario(cluster, raw, further_shards=further_shards)
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


@pytest.fixture
def own_servers(own_redis: Server, num_shards: int) -> Iterator[list[Server]]:
    """Yields `own_redis`, and the Redis of further shards with the same options."""
    for further in start_servers(num_shards - 1, own_redis.options):
        yield [own_redis, *further]


@pytest_asyncio.fixture
async def own_scenario(
    own_servers: list[Server],
    queue_name: str,
    new_scenario: NewScenario,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Scenario]:
    """Yields a cluster on `own_servers`, which must be empty at the end."""
    url, *further_urls = [each.url for each in own_servers]
    async with clients_of([url, *further_urls]) as (raw, *further_shards):
        async with Processes(tmp_path_factory.mktemp("own")) as processes:
            cluster = GatewayCluster(processes, url, queue_name, further_urls)
            scenario = new_scenario(cluster, raw, further_shards=further_shards)
            yield scenario
            if not may_leave_keys(request):
                assert not scenario.crash_logs()
                await scenario.wait_until_drained()
        if not may_leave_keys(request):
            cluster.check_leaks(uploads=True)
