"""The connections of a queue all lead to one Redis, though their address leads to several."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio
from structlog.testing import capture_logs

from shared import producer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.servers import Server
from tests.several_redis import as_blind, blind_user, follow, promote
from tests.switch import Switch
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

CONNECTIONS = 4
RESET_SEEN_S = 0.1


@pytest_asyncio.fixture
async def first() -> AsyncIterator[Server]:
    """The master that the connections find at first."""
    server = Server()
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


@pytest_asyncio.fixture
async def second() -> AsyncIterator[Server]:
    """Another Redis."""
    server = Server()
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


@pytest.fixture
def lives_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The home counts as alive for a minute after its last answer, so that a stall of the machine does not end it."""
    monkeypatch.setattr("shared.home_guard.ALIVE_S", 60.0)


class Cluster:
    """The connections of a queue, whose address leads to one of several Redis."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.queue = QueueConnections(QueueSettings(redis_url=switch.url, redis_timeout_s=2), "q", "test")
        self.connections = [self.queue.connection(f"c{i}", identified=i % 2 == 0) for i in range(CONNECTIONS)]
        self.moves = 0
        self.queue.home.watch(self._count_move)

    def _count_move(self) -> None:
        self.moves += 1

    async def ports(self) -> list[str]:
        """Returns the port of the Redis that each connection reaches, or what it fails with."""
        return [await port_of(each) for each in self.connections]

    async def cut(self, num: int) -> None:
        """Resets some of the connections, and waits until this has arrived."""
        await self.switch.cut(num)
        await asyncio.sleep(RESET_SEEN_S)


async def port_of(connection: RedisConnection) -> str:
    """Returns the port of the Redis that a connection reaches, or "another", "a replica" or "" if it is refused."""
    try:
        info = await connection.call("INFO", "server")
    except RedisUnreachableError as error:
        return next((word for word in ("another", "a replica") if f"leads to {word}" in error.message), "")
    return str(next(line.split(b":")[1].decode() for line in info.splitlines() if line.startswith(b"tcp_port:")))


@pytest_asyncio.fixture
async def cluster(first: Server) -> AsyncIterator[Cluster]:
    """Connections that have all reached the first Redis."""
    async with Switch(first) as switch:
        cluster = Cluster(switch)
        assert await cluster.ports() == [str(first.port)] * CONNECTIONS
        yield cluster
        await cluster.queue.close()


@pytest.mark.usefixtures("lives_long")
async def test_another_redis_is_refused_while_the_home_lives(cluster: Cluster, first: Server, second: Server) -> None:
    """A connection that broke does not go to it, and the others are left alone; once the address is right, it works."""
    await cluster.switch.route(second)
    await cluster.cut(1)
    home = str(first.port)
    assert sorted(await cluster.ports()) == sorted([home] * (CONNECTIONS - 1) + ["another"])
    await cluster.switch.route(first)
    assert (await cluster.ports(), cluster.moves) == ([home] * CONNECTIONS, 0)


@pytest.mark.usefixtures("lives_long")
async def test_the_home_is_reached_though_the_address_leads_elsewhere_as_well(
    cluster: Cluster, first: Server, second: Server
) -> None:
    """A call tries several times to connect: most succeed, where each attempt would by half."""
    await cluster.switch.route(first, second)
    reached = 0
    for _ in range(25):
        await cluster.cut(1)
        reached += (await cluster.ports()).count(str(first.port))
    assert reached >= 25 * CONNECTIONS - 8


async def test_another_redis_is_the_home_once_no_connection_reaches_the_first(cluster: Cluster, second: Server) -> None:
    """However the connections to the first were lost."""
    await cluster.switch.route(second)
    await cluster.cut(CONNECTIONS)
    assert (await cluster.ports(), cluster.moves) == ([str(second.port)] * CONNECTIONS, 1)


async def test_a_redis_that_was_killed_is_found_again_at_once(cluster: Cluster, first: Server) -> None:
    """It has lost its data and is another one to tell by its ids; the first call after its start succeeds."""
    os.kill(first.pid, signal.SIGKILL)
    await wait_until(lambda: not first.is_running(), "the server is dead")
    assert await port_of(cluster.connections[0]) == ""
    await asyncio.to_thread(first.start)
    assert (await cluster.ports(), cluster.moves) == ([str(first.port)] * CONNECTIONS, 1)


async def test_a_redis_that_hangs_is_left_soon(cluster: Cluster, first: Server, second: Server) -> None:
    """Its connections stay open, and count for a few seconds only."""
    os.kill(first.pid, signal.SIGSTOP)
    try:
        await cluster.switch.route(second)
        another = cluster.queue.connection("another")
        await wait_until(lambda: _reaches(another, second), "the other Redis is the home", poll_s=0.1)
        assert (await cluster.ports(), cluster.moves) == ([str(second.port)] * CONNECTIONS, 1)
    finally:
        os.kill(first.pid, signal.SIGCONT)


async def _reaches(connection: RedisConnection, server: Server) -> bool:
    return await port_of(connection) == str(server.port)


@pytest.mark.usefixtures("lives_long")
async def test_all_connections_move_to_a_promoted_replica(cluster: Cluster, first: Server, second: Server) -> None:
    """As soon as one reaches it: calls under way fail, and idle connections do not stay at the old master.

    The old master, which takes writes all the time, is refused from then on. The replica was attached after the
    connections were made, which gives the master another replication id.
    """
    await follow(second, first)
    await cluster.switch.route(second)
    await cluster.cut(1)
    assert sorted(await cluster.ports()) == sorted([str(first.port)] * (CONNECTIONS - 1) + ["a replica"])
    await asyncio.gather(*(each.check_home() for each in cluster.connections))
    await promote(second)
    with capture_logs() as logs:
        results = await asyncio.gather(
            *(each.pop("nothing", 2) for each in cluster.connections), return_exceptions=True
        )
    assert [isinstance(each, RedisUnreachableError) for each in results].count(True) == CONNECTIONS - 1
    assert [each["queue"] for each in logs if "taken over" in each["event"]] == ["q"]
    assert (await cluster.ports(), cluster.moves) == ([str(second.port)] * CONNECTIONS, 1)
    await cluster.switch.route(first)
    await cluster.cut(1)
    assert "another" in await cluster.ports()


async def test_a_master_that_became_a_replica_is_noticed_without_a_write(
    cluster: Cluster, first: Server, second: Server
) -> None:
    """`check_home` reads it, as gateways and workers do each second."""
    await follow(first, second)
    with pytest.raises(RedisUnreachableError, match="a replica"):
        await cluster.connections[0].check_home()
    assert await port_of(cluster.connections[0]) == "a replica"


async def test_without_the_right_to_info_there_is_a_warning_and_no_check(
    cluster: Cluster, first: Server, second: Server
) -> None:
    """As with a managed service: each connection stays where it is, and new ones go where the address leads."""
    async with blind_user(first, second), Switch(first) as switch:
        queue = QueueConnections(QueueSettings(redis_url=as_blind(switch.url)), "q", "blind")
        moves: list[None] = []
        queue.home.watch(lambda: moves.append(None))
        with capture_logs() as logs:
            connections = [queue.connection(f"c{i}", identified=bool(i)) for i in range(2)]
            for each in connections:
                await each.call("SET", "where", "first")
                await each.check_home()
            await switch.route(second)
            assert await queue.connection("another").call("GET", "where") is None
        assert await connections[0].call("GET", "where") == b"first"
        assert (len([each for each in logs if "INFO" in each["event"]]), moves) == (1, [])
        await queue.close()


async def test_a_connection_costs_no_command_more_than_the_identity(cluster: Cluster, first: Server) -> None:
    """It is read once for each connection, and with no call."""
    async with redis.asyncio.Redis.from_url(first.url, protocol=2) as raw:
        await raw.config_resetstat()
        for each in cluster.connections:
            await each.call("ECHO", "x")
        await producer.queue_stats(cluster.connections[0], cluster.queue.keys)
        stats = await raw.info("commandstats")
    assert stats["cmdstat_echo"]["calls"] == CONNECTIONS
    assert stats["cmdstat_info"]["calls"] == 3, "those of the statistics"
