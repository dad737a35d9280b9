"""The fixtures of the gateway tests, a gateway of rerankers, and the selection of the tests with frameworks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis

from shared import api_keys
from shared.keys import API_KEYS
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import Quota
from tests import plain_http
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


@dataclass(frozen=True)
class Guarded:
    """A gateway that requires API keys, in front of the queues of `gateway`.

    Attributes:
        gateway: that one.
        queue: of the reranker.
        key: admits to all that computes.
        jobs_key: lacks the scope for what is not a job.
        poor_key: of a tenant with one token per second.
        slow_key: the same of another tenant.
    """

    gateway: GatewayProcess
    queue: str
    key: str
    jobs_key: str
    poor_key: str
    slow_key: str


@pytest.fixture(scope="module")
def guarded(gateway: GatewayProcess, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """This gateway, with keys that are removed at the end."""
    models = plain_http.get(f"{gateway.url}/v1/models").json()["data"]
    queue = str(min((each["id"] for each in models), key=len))
    cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("guarded")), redis_url, queue)

    async def start() -> tuple[GatewayProcess, list[str]]:
        connections = QueueConnections(QueueSettings(redis_url=redis_url), queue, "test")
        keys = [api_keys.new_key(("embed",), tenant="rich"), api_keys.new_key(("jobs",))]
        keys += [
            api_keys.new_key(("embed",), tenant=name, quota=Quota(tokens_per_s=1, burst_tokens=1))
            for name in ("poor", "slow")
        ]
        for key, _ in keys:
            await api_keys.add(connections.connection("keys"), key)
        await connections.close()
        started = await cluster.start_gateway(all_queues=True, max_inputs=200, auth="on")
        await wait_until(lambda: started.ready_workers(queue) == 1, "the gateway knows the worker", timeout_s=30)
        return started, [secret for _, secret in keys]

    async def stop() -> None:
        async with cluster.processes:
            pass

    with asyncio.Runner() as runner:
        started, secrets = runner.run(start())
    yield Guarded(started, queue, *secrets)
    with asyncio.Runner() as runner:
        runner.run(stop())
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.delete(API_KEYS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests with frameworks unless `-m frameworks` selects them: their environment takes minutes."""
    if "frameworks" in config.getoption("markexpr"):
        return
    deselected = [item for item in items if item.get_closest_marker("frameworks") is not None]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]
