"""A cluster whose processes can import the functions of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples"


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """A cluster around the test's queue, whose processes can import these tests and the examples."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        cluster = GatewayCluster(processes, redis_url, queue_name)
        cluster.environment["PYTHONPATH"] = f"{ROOT}:{EXAMPLES}"
        yield cluster
