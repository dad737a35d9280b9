"""Chromium for all tests, and a gateway with a worker for those of a module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.browser.browser import Browser, started_browser
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, shared_gateway
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until


class Served(NamedTuple):
    """A gateway, and the cluster to which tests add processes."""

    gateway: GatewayProcess
    cluster: GatewayCluster


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, for all tests."""
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    """A cluster with a separate Redis, so that the console shows nothing else."""
    with Server() as server:
        yield GatewayCluster(Processes(tmp_path_factory.mktemp("console")), server.url, "texts")


@pytest.fixture(scope="module")
def served(cluster: GatewayCluster) -> Iterator[Served]:
    """A gateway without API keys and a null worker."""

    async def start() -> GatewayProcess:
        gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
        await wait_until(lambda: gateway.ready_workers(cluster.queue) == 1, "the gateway sees the worker")
        return gateway

    with shared_gateway(cluster, start) as gateway:
        yield Served(gateway, cluster)
