"""A password of Redis that expires: it is read from its file for each new connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from math import inf
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import redis

from shared.errors import RedisUnreachableError
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.redis_cluster import RedisCluster
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

USER = "expiring"


def set_password(server: Server, password: str) -> None:
    """Gives the user a password, and takes the others from it."""
    with redis.Redis.from_url(server.url, protocol=2) as raw:
        raw.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{password}", "~*", "&*", "+@all")


def cut_all(server: Server) -> None:
    """Closes all connections of the user, as services do when a token expires."""
    with redis.Redis.from_url(server.url, protocol=2) as raw:
        raw.execute_command("CLIENT", "KILL", "USER", USER)


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis of the test's own, as its log has refused logins."""
    with Server() as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file with the password."""
    path = tmp_path / "password"
    path.write_text("first\n", encoding="utf-8")
    return path


def settings_of(url: str, file: Path) -> QueueSettings:
    """Returns the settings for that user."""
    return QueueSettings(redis_url=url.replace("://", f"://{USER}@"), redis_password_file=str(file))


@pytest_asyncio.fixture
async def queue(server: Server, file: Path, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The connections of a process."""
    set_password(server, "first")
    queue = QueueConnections(settings_of(f"redis://127.0.0.1:{server.port}/0", file), queue_name, "test")
    yield queue
    await queue.close()


async def test_a_new_connection_uses_the_new_password(server: Server, file: Path, queue: QueueConnections) -> None:
    """Those that are open go on, and use it once they are cut."""
    old, new = queue.connection("old"), queue.connection("new")
    await old.ping()
    set_password(server, "second")
    await old.ping()
    with pytest.raises(RedisUnreachableError, match="Redis refuses the user or its password"):
        await new.ping()
    file.write_text("second", encoding="utf-8")
    await new.ping()
    cut_all(server)
    for connection in (old, new):
        await wait_until(lambda connection=connection: connection.answered_at == -inf, "it is closed")  # type: ignore[misc]
        await connection.ping()


async def test_a_file_that_is_gone_is_said(file: Path, queue: QueueConnections) -> None:
    """It may be back later: until then, Redis is out of reach."""
    connection = queue.connection("any")
    file.rename(file.with_suffix(".away"))
    with pytest.raises(RedisUnreachableError, match=r"password of Redis: it cannot be read \(No such file"):
        await connection.ping()
    file.with_suffix(".away").rename(file)
    await connection.ping()


async def test_without_a_user_it_is_the_password_of_the_default_user(file: Path, queue_name: str) -> None:
    """As `requirepass` sets it."""
    with Server(users=False, options=["--requirepass", "first"]) as server:
        settings = QueueSettings(redis_url=server.url, redis_password_file=str(file))
        queue = QueueConnections(settings, queue_name, "test")
        await queue.connection("any").ping()
        await queue.close()


async def test_each_server_of_a_redis_cluster_gets_it(servers: RedisCluster, file: Path, queue_name: str) -> None:
    """Those that are queried for the slot, and the one that has it."""
    for server in servers.servers:
        set_password(server, "first")
    queue = QueueConnections(settings_of(servers.cluster_url, file), queue_name, "test")
    await queue.connection("any").ping()
    file.unlink()
    queue.source.locator.forget()
    for server in servers.servers:
        cut_all(server)
    with pytest.raises(RedisUnreachableError, match=r"password of Redis: it cannot be read"):
        await queue.connection("other").ping()
    await queue.close()


async def test_gateways_and_workers_go_on_with_a_new_password(
    server: Server, file: Path, queue_name: str, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """A token has expired, and Redis has closed all connections that logged in with it."""
    set_password(server, "first")
    async with Processes(tmp_path) as processes:
        cluster = GatewayCluster(processes, f"redis://{USER}@127.0.0.1:{server.port}/0", queue_name)
        gateway, _ = await asyncio.gather(
            cluster.start_gateway(redis_password_file=file), cluster.start_worker(redis_password_file=file)
        )
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        set_password(server, "second")
        file.write_text("second", encoding="utf-8")
        cut_all(server)
        assert (await gateway.send(client, "after that")).status_code == 200
