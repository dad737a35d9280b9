"""A gateway while its Redis is replaced by its replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio

from tests import plain_http
from tests.chaos.attack import new_tenant
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.processes import Processes
from tests.servers import Server
from tests.several_redis import follow, promote
from tests.switch import Switch
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


@pytest_asyncio.fixture
async def servers() -> AsyncIterator[list[Server]]:
    """Two Redis."""
    servers = [Server(), Server()]
    for server in servers:
        await asyncio.to_thread(server.start)
    yield servers
    for server in servers:
        await asyncio.to_thread(server.stop)


def status(gateway: GatewayProcess, key: str) -> int:
    """Sends a request with an API key; returns its status."""
    headers = {"x-api-key": key}
    return plain_http.post(f"{gateway.url}/embed", json={"text": "a"}, headers=headers, timeout=30).status_code


async def test_keys_are_read_where_requests_go(
    servers: list[Server], queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After a switch to a replica that followed later, while the old master goes on as a replica of it.

    The connection that reads the announced queues keeps reading there, and does not keep the keys' connection away.
    """
    old, new = servers
    async with Switch(old) as switch, Processes(tmp_path_factory.mktemp("switched")) as processes:
        key = await new_tenant(old.url)
        cluster = GatewayCluster(processes, switch.url, queue_name)
        gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on", all_queues=True), cluster.start_worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        assert await asyncio.to_thread(status, gateway, key) == 200
        await follow(new, old)
        await switch.route(new)
        await promote(new)
        await follow(old, new)
        await kill_connections(old, ":keys")
        late_key = await new_tenant(new.url)
        await wait_until(lambda: status(gateway, late_key) == 200, "the key is found")


async def kill_connections(server: Server, suffix: str) -> None:
    """Closes the connections with such names at a Redis; there must be some."""
    async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw:
        ids = [each["id"] for each in await raw.client_list() if each["name"].endswith(suffix)]
        assert ids
        for each in ids:
            await raw.execute_command("CLIENT", "KILL", "ID", each)
