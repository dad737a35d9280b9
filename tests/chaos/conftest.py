"""Clusters that harm is done to; the number of times grows with `make chaos`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import redis.asyncio

from tests.chaos.report import FAULT
from tests.chaos.scenario import Figures, Scene
from tests.integration.gateway.house import House
from tests.processes import Processes
from tests.proxy import FaultProxy
from tests.servers import Server


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether the run was asked to take its time (`make chaos`)."""
    return "slow" in request.config.getoption("markexpr")


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> Iterator[list[Figures]]:
    """What the test's scenes find, for the table at the end of the run."""
    rows: list[Figures] = []
    yield rows
    request.node.user_properties.extend((FAULT, row) for row in rows)


@pytest_asyncio.fixture
async def house(
    redis_url: str, queue_name: str, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Processes of the test's own, around the test's queue; they end before the proxy does that some speak through."""
    assert proxy.url
    async with Processes(tmp_path_factory.mktemp("house")) as processes:
        yield House(processes, redis_url, queue_name)


def litters(request: pytest.FixtureRequest) -> bool:
    """Whether the test may leave anything behind."""
    return request.node.get_closest_marker("litters") is not None


@pytest_asyncio.fixture
async def scene(
    house: House, raw: redis.asyncio.Redis, thorough: bool, rows: list[Figures], request: pytest.FixtureRequest
) -> AsyncIterator[Scene]:
    """A cluster around the session's Redis."""
    scene = Scene(house, raw, thorough, rows)
    yield scene
    if not litters(request):
        assert not scene.fell_over()
        await scene.drained()  # of what was submitted twice, one may still be there when all have been answered


@pytest_asyncio.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    """A network between some program and the session's Redis."""
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def own_redis(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A Redis that may be killed, frozen and filled; parametrize it with arguments of redis-server."""
    options: list[str] = getattr(request, "param", [])
    with Server(options=options) as server:
        yield server


@pytest_asyncio.fixture
async def own_scene(
    own_redis: Server,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Scene]:
    """A cluster around that Redis, in which nothing may be left."""
    house_url = own_redis.url
    async with redis.asyncio.Redis.from_url(house_url, protocol=2) as raw:
        async with Processes(tmp_path_factory.mktemp("own")) as processes:
            house = House(processes, house_url, queue_name)
            scene = Scene(house, raw, thorough, rows)
            yield scene
            if not litters(request):
                assert not scene.fell_over()
                await scene.drained()
        if not litters(request):
            house.check()
