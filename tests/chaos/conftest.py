"""A house for a cluster that is done harm to; the number of times grows with `make chaos`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.gateway.house import House
from tests.processes import Processes


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether the run was asked to take its time (`make chaos`)."""
    return "slow" in request.config.getoption("markexpr")


@pytest_asyncio.fixture
async def house(redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Processes of the test's own, around the test's queue."""
    async with Processes(tmp_path_factory.mktemp("house")) as processes:
        yield House(processes, redis_url, queue_name)
