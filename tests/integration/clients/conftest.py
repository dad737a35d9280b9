"""The fixtures of the gateway tests, a gateway of rerankers, and the selection of the tests with frameworks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from tests.integration.gateway.conftest import cluster, fake_heartbeat, served
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, shared_gateway
from tests.processes import Processes
from tests.waiting import wait_until

__all__ = ["cluster", "fake_heartbeat", "served"]

RERANKER, CLASSIFIER = "simulated:base_ms=0,item_ms=0,labels=1", "simulated:base_ms=0,item_ms=0,labels=3"


@pytest.fixture(scope="module")
def gateway(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with three queues: of a reranker, which is the default, a classifier, and a model of embeddings."""
    cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("served")), redis_url, f"rerank-{uuid.uuid4().hex[:8]}")

    names = [cluster.queue + suffix for suffix in ("", "-labels", "-null")]

    async def start() -> GatewayProcess:
        gateway, *_ = await asyncio.gather(
            cluster.start_gateway(all_queues=True, max_inputs=200, access_log=True),
            cluster.start_worker(RERANKER),
            cluster.start_worker(CLASSIFIER, queue=names[1]),
            cluster.start_worker("null", queue=names[2]),
        )
        await wait_until(lambda: all(gateway.ready_workers(name) == 1 for name in names), "all are ready", timeout_s=30)
        return gateway

    with shared_gateway(cluster, start, other_queues=names[1:]) as gateway:
        yield gateway


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests with frameworks unless `-m frameworks` selects them: their environment takes minutes."""
    if "frameworks" in config.getoption("markexpr"):
        return
    deselected = [item for item in items if item.get_closest_marker("frameworks") is not None]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]
