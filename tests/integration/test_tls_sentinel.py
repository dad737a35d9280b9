"""Sentinels that require TLS, and name their master as its certificate does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from redbatch.up.local_redis import LocalRedisError
from shared.errors import RedisUnreachableError
from shared.process.tasks import cancel_and_wait
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster, has_vectors
from tests.integration.test_tls import write_certificates
from tests.processes import Processes
from tests.sentinels import ANNOUNCED_WITHIN_S, SentinelGroup, sentinel_group
from tests.servers import skip
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.tls]

SENTINEL_PASSWORD = "of-the-sentinels"


@pytest_asyncio.fixture
async def group(tmp_path: Path) -> AsyncIterator[SentinelGroup]:
    """Yields a group of which each connection uses TLS with client certificates."""
    write_certificates(trustme.CA(), tmp_path)
    try:
        async with sentinel_group(
            tmp_path, password="s3cret", sentinel_password=SENTINEL_PASSWORD, certificates=tmp_path
        ) as group:
            yield group
    except LocalRedisError as error:
        if "Bad directive" not in str(error):
            raise
        skip("this redis-server was built without TLS")


def values_of(group: SentinelGroup, folder: Path) -> dict[str, Any]:
    """Returns the settings of a process with a client certificate, by name."""
    names = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
    files = {f"redis_tls_{name}": str(folder / file) for name, file in names.items()}
    return {"redis_url": group.url, "redis_sentinel_password": SENTINEL_PASSWORD, **files}


def settings_of(group: SentinelGroup, folder: Path, **more: object) -> QueueSettings:
    """Returns the same settings, with others."""
    return QueueSettings.model_validate(values_of(group, folder) | more)


async def test_connections_follow_the_master_with_tls(group: SentinelGroup, queue_name: str, tmp_path: Path) -> None:
    """Sentinels and Redis are verified by name, also after a failover, which sentinels announce."""
    queue = QueueConnections(settings_of(group, tmp_path), queue_name, "test")
    connection = queue.connection("any")
    await connection.ping()
    before = connection.server
    assert before.startswith("localhost:")
    following = asyncio.create_task(queue.follow_switches())
    await asyncio.sleep(1)  # for the subscriptions
    await group.fail_over()

    async def has_moved() -> bool:
        try:
            await connection.ping()
        except RedisUnreachableError:
            await asyncio.sleep(0.05)
        return connection.server != before

    await wait_until(has_moved, "the connection leads to the new master", timeout_s=ANNOUNCED_WITHIN_S)
    await cancel_and_wait([following])
    await connection.ping()
    assert connection.server.startswith("localhost:")
    await queue.close()


async def test_a_request_is_answered_over_tls(group: SentinelGroup, queue_name: str, tmp_path: Path) -> None:
    """Gateway and worker find the master by the sentinels, and again after a failover."""
    settings = values_of(group, tmp_path)
    async with Processes(tmp_path) as processes:
        cluster = GatewayCluster(processes, group.url, queue_name)
        gateway, _ = await asyncio.gather(cluster.start_gateway(**settings), cluster.start_worker(**settings))
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        assert has_vectors(await asyncio.to_thread(gateway.embed, {"texts": ["a"]}), ["a"])
        await group.fail_over()
        assert has_vectors(await asyncio.to_thread(gateway.embed, {"texts": ["b"]}), ["b"])


async def test_sentinels_that_are_not_trusted_are_refused(
    group: SentinelGroup, queue_name: str, tmp_path: Path
) -> None:
    """With another authority there is no connection, neither to them nor to Redis."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    settings = settings_of(group, tmp_path, redis_tls_ca=str(tmp_path / "other.pem"))
    queue = QueueConnections(settings, queue_name, "test")
    with pytest.raises(RedisUnreachableError, match=r"There is no safe connection to localhost:.* not trusted"):
        await queue.connection("any").ping()
    await queue.close()
