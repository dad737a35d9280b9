"""A gateway and a null worker for a whole module, and a house in which a test starts its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.integration.gateway.house import Gateway, House
from tests.processes import Processes
from tests.waiting import wait_until

READY_S = 20.0


@pytest.fixture(scope="module")
def served(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a null worker behind it, which the tests of a module share."""
    house = House(Processes(tmp_path_factory.mktemp("served")), redis_url, f"served-{uuid.uuid4().hex[:8]}")

    async def start() -> Gateway:
        gateway, _ = await asyncio.gather(house.gateway(), house.worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=READY_S)
        return gateway

    async def stop() -> None:
        async with house.processes:
            pass

    with asyncio.Runner() as runner:
        gateway = runner.run(start())
    yield gateway
    with asyncio.Runner() as runner:
        runner.run(stop())
    house.check()


@pytest_asyncio.fixture
async def house(redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Processes of the test's own, around the test's queue."""
    async with Processes(tmp_path_factory.mktemp("house")) as processes:
        yield House(processes, redis_url, queue_name)
