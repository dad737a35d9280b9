"""Dispatchers in the test's own process, and real workers behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from api.dispatch.dispatcher import Dispatcher
from api.settings import GatewaySettings
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.proxy import FaultProxy
from tests.users import as_user

StartDispatcher = Callable[..., Awaitable[Dispatcher]]
THOROUGH = "test_stress.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the thorough form of the stress tests, which takes minutes, to those who ask for it with `-m slow`."""
    if "slow" in config.getoption("markexpr"):
        return
    left = [item for item in items if item.path.name == THOROUGH and item.get_closest_marker("slow") is not None]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Processes of the test's own, around the test's queue."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    """A network between gateways and Redis, at the test's mercy."""
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def start_dispatcher(redis_url: str, queue_name: str, cluster: GatewayCluster) -> AsyncIterator[StartDispatcher]:
    """Opens dispatchers of the test's queue; they are stopped before the workers are."""
    async with AsyncExitStack() as stack:

        async def open_one(url: str = redis_url, **settings: object) -> Dispatcher:
            given = {"redis_url": as_user(url, "gateway"), "queue": queue_name} | settings
            dispatcher = Dispatcher(GatewaySettings.model_validate(given), queue_name)
            await dispatcher.start()
            stack.push_async_callback(dispatcher.stop)
            return dispatcher

        yield open_one
