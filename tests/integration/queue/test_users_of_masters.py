"""The users of docs/redis.md for what is around a master: replicas, sentinels and haproxy have enough rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.errors import RedisUnreachableError
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.haproxy import haproxy
from tests.sentinels import SentinelGroup, sentinel_group
from tests.servers import Version, require
from tests.users import HAPROXY, OBSERVER, as_user, password_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def group(server_version: Version, tmp_path: Path) -> AsyncIterator[SentinelGroup]:
    """Yields a group with users. When it ends, no server may have refused a command."""
    require("7.0", server_version)
    async with sentinel_group(tmp_path, users=True) as group:
        yield group


async def test_sentinels_fail_over_under_their_own_user(group: SentinelGroup, queue_name: str) -> None:
    """They promote a replica, and the old master follows it; a gateway finds the new one under its own user."""
    await group.fail_over()
    await group.wait_until_joined()
    queue = QueueConnections(QueueSettings(redis_url=as_user(group.url, "gateway")), queue_name, "gateway")
    connection = queue.connection("any")
    await connection.ping()
    assert connection.server == f"127.0.0.1:{(await group.master()).port}"
    await queue.close()


async def test_haproxy_finds_the_master_under_its_own_user(
    group: SentinelGroup, queue_name: str, tmp_path: Path
) -> None:
    """It leads to the master, and to the next one after a failover."""
    with haproxy(tmp_path, group.servers, password=password_of(HAPROXY)) as address:
        url = address.replace("redis://", f"redis://{OBSERVER}:{password_of(OBSERVER)}@")
        queue = QueueConnections(QueueSettings(redis_url=url), queue_name, "test")
        connection = queue.connection("any")

        async def leads_to_master() -> bool:
            try:
                info = await connection.call("INFO", "server")
            except RedisUnreachableError:
                await asyncio.sleep(0.1)
                return False
            return b"tcp_port:%d\r" % (await group.master()).port in info

        await wait_until(leads_to_master, "haproxy leads to the master")
        await group.fail_over()
        await wait_until(leads_to_master, "haproxy leads to the new master")
        await queue.close()
