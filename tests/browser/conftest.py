"""Chromium and a small cluster, for all tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.browser.browser import Browser, started_browser
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, shared_gateway
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until


class Served(NamedTuple):
    """A gateway, one that requires API keys, and the cluster to which tests add processes."""

    gateway: GatewayProcess
    keyed: GatewayProcess
    cluster: GatewayCluster


def connections_of(cluster: GatewayCluster) -> QueueConnections:
    """Returns connections to the queue."""
    return QueueConnections(QueueSettings(redis_url=cluster.redis_url), cluster.queue, "test")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, for all tests."""
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two gateways and a null worker, with a separate Redis, so that the console shows nothing else.

    A test that adds keys to the queue or workers removes them.
    """
    gateways: list[GatewayProcess] = []

    async def start() -> GatewayProcess:
        open_one, keyed, _ = await asyncio.gather(
            cluster.start_gateway(), cluster.start_gateway(auth="on"), cluster.start_worker()
        )
        gateways.extend((open_one, keyed))
        await wait_until(lambda: all(each.ready_workers(cluster.queue) == 1 for each in gateways), "all see the worker")
        return gateways[0]

    with Server() as server:
        cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("console")), server.url, "texts")
        with shared_gateway(cluster, start) as gateway:
            yield Served(gateway, gateways[1], cluster)
