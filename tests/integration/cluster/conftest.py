"""Dispatchers in the test's process, and real workers behind them."""

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
STRESS_TESTS = "test_stress.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the thorough stress tests unless `-m slow` selects them: they take minutes."""
    if "slow" in config.getoption("markexpr"):
        return
    deselected = [
        item for item in items if item.path.name == STRESS_TESTS and item.get_closest_marker("slow") is not None
    ]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """A cluster around the test's queue, without processes."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    """A proxy between dispatchers and Redis that injects faults of the network."""
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def start_dispatcher(redis_url: str, queue_name: str, cluster: GatewayCluster) -> AsyncIterator[StartDispatcher]:
    """Starts dispatchers of the test's queue; they stop before the workers do."""
    async with AsyncExitStack() as stack:

        async def start_one(url: str = redis_url, **settings: object) -> Dispatcher:
            values = {"redis_url": as_user(url, "gateway"), "queue": queue_name} | settings
            dispatcher = Dispatcher(GatewaySettings.model_validate(values), queue_name)
            await dispatcher.start()
            stack.push_async_callback(dispatcher.stop)
            return dispatcher

        yield start_one
