"""A Redis Cluster whose servers require TLS, with client certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from redbatch.up.local_redis import LocalRedisError
from shared.keys import API_KEYS
from tests.integration.gateway.gateway_cluster import GatewayCluster, has_vectors
from tests.integration.gateway.test_cluster_url import run_redbatch
from tests.integration.test_tls import write_certificates
from tests.processes import Processes
from tests.redis_cluster import RedisCluster, slot_of
from tests.servers import skip
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.tls]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[RedisCluster]:
    """Two servers, which name each other by address; skips the test if they were built without TLS."""
    write_certificates(trustme.CA(), tmp_path, ["localhost", "127.0.0.1"])
    try:
        with RedisCluster(certificates=tmp_path) as servers:
            yield servers
    except LocalRedisError as error:
        if "Bad directive" not in str(error):
            raise
        skip("this redis-server was built without TLS")


async def test_a_request_is_answered_over_tls(servers: RedisCluster, queue_name: str, tmp_path: Path) -> None:
    """Command, gateway and worker reach both servers, of which one has the API keys, by their TLS ports alone."""
    await asyncio.to_thread(servers.move, slot_of(API_KEYS), 0, 1)
    async with Processes(tmp_path) as processes:
        cluster = GatewayCluster(processes, servers.cluster_url, queue_name)
        for name, file in (("CA", "ca.pem"), ("CERT", "client.pem"), ("KEY", "client.key")):
            cluster.environment[f"REDBATCH_REDIS_TLS_{name}"] = str(tmp_path / file)
        key = (await asyncio.to_thread(run_redbatch, "keys", "create", env=cluster.env())).split()[0]
        gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on"), cluster.start_worker())
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        answer = await asyncio.to_thread(gateway.embed, {"texts": ["a", "b"]}, authorization=f"Bearer {key}")
        assert has_vectors(answer, ["a", "b"])
        names: list[set[str]] = []
        for server in servers.servers:
            with redis.Redis.from_url(server.url, protocol=2) as raw:
                rows: Any = raw.client_list()
            ours = [each for each in rows if each["name"].startswith(("gateway:", "worker:"))]
            assert all(int(each["laddr"].rpartition(":")[2]) != server.port for each in ours)
            names.append({each["name"].partition(":")[0] for each in ours})
        assert names == [{"gateway", "worker"}, {"gateway"}]
