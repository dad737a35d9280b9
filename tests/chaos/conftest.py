"""Clusters that harm is done to; the number of times grows with `make chaos`, which also prints what was found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import redis.asyncio
from rich.console import Console
from rich.table import Table

from redbatch.local_redis import LocalRedis
from tests.chaos.scene import Figures, Scene
from tests.integration.gateway.house import House
from tests.processes import Processes
from tests.proxy import FaultProxy
from tests.servers import server_binary

ROWS = pytest.StashKey[list[Figures]]()
COMMON = ("fault", "calls", "lost", "misrouted", "late", "slowest_s")


def pytest_configure(config: pytest.Config) -> None:
    """Makes room for what the scenes find."""
    config.stash[ROWS] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves all but the short selection to those who ask for it with `-m slow`."""
    if "slow" in config.getoption("markexpr"):
        return
    left = [item for item in items if item.get_closest_marker("long") is not None]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def pytest_terminal_summary(config: pytest.Config) -> None:
    """Prints what they have found."""
    rows = config.stash[ROWS]
    if not rows:
        return
    table = Table(title="What the faults did")
    for name in (*COMMON, "besides"):
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        besides = ", ".join(f"{name}={value}" for name, value in row.items() if name not in COMMON)
        table.add_row(*(str(row[name]) for name in COMMON), besides)
    Console(width=160).print(table)


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether the run was asked to take its time (`make chaos`)."""
    return "slow" in request.config.getoption("markexpr")


@pytest_asyncio.fixture
async def house(
    redis_url: str, queue_name: str, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Processes of the test's own, around the test's queue; they end before the proxy does that some speak through."""
    assert proxy.url
    async with Processes(tmp_path_factory.mktemp("house")) as processes:
        yield House(processes, redis_url, queue_name)


@pytest.fixture
def scene(house: House, raw: redis.asyncio.Redis, thorough: bool, request: pytest.FixtureRequest) -> Scene:
    """A cluster around the session's Redis."""
    return Scene(house, raw, thorough, request.config.stash[ROWS])


@pytest_asyncio.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    """A network between some program and the session's Redis."""
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def own_redis(request: pytest.FixtureRequest) -> Iterator[LocalRedis]:
    """A Redis that may be killed, frozen and filled; parametrize it with arguments of redis-server."""
    options: list[str] = getattr(request, "param", [])
    with LocalRedis(server_binary(), options=options) as server:
        yield server


@pytest_asyncio.fixture
async def own_scene(
    own_redis: LocalRedis,
    queue_name: str,
    thorough: bool,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Scene]:
    """A cluster around that Redis, in which nothing may be left."""
    house_url = own_redis.url
    async with redis.asyncio.Redis.from_url(house_url, protocol=2) as raw:
        async with Processes(tmp_path_factory.mktemp("own")) as processes:
            house = House(processes, house_url, queue_name)
            yield Scene(house, raw, thorough, request.config.stash[ROWS])
        if request.node.get_closest_marker("litters") is None:
            house.check()
