"""A client that leaves: its work is taken back, and its place is free."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any

import pytest
import redis.asyncio

from shared.keys import Keys
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("fake_heartbeat")]


class Lane:
    """The queue's one lane, and the connections that wait for replies."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._name = keys.lanes[0]

    async def entries(self) -> list[dict[bytes, bytes]]:
        """The fields of each entry."""
        rows: Any = await self._client.xrange(self._name)
        return [dict(fields) for _, fields in rows]

    async def has(self, number: int) -> bool:
        """Whether so many entries are in it."""
        return int(await self._client.xlen(self._name)) == number

    async def waits(self, number: int) -> bool:
        """Whether so many waiters of gateways, bells aside, are in a blocking pop."""
        blocked = [each["name"] for each in await self._client.client_list() if "b" in each["flags"]]
        return sum(":reply:" in name and ":bell" not in name for name in blocked) == number


@pytest.fixture
def lane(raw: redis.asyncio.Redis, keys: Keys) -> Lane:
    """The test's lane."""
    return Lane(raw, keys)


def begin(gateway: GatewayProcess, *texts: str) -> socket.socket:
    """Sends a request and leaves its connection open."""
    body = json.dumps({"texts": texts, "timeout_ms": 30_000}).encode()
    connection = socket.create_connection(("127.0.0.1", gateway.port))
    connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return connection


async def test_the_entries_of_a_client_that_leaves_are_taken_back(cluster: GatewayCluster, lane: Lane) -> None:
    """Nobody has read them yet: soon they are gone, and the waiter is free again at once."""
    gateway = await cluster.start_gateway(reply_connections=2)
    connection = begin(gateway, *(f"text {i}" for i in range(100)))
    await wait_until(lambda: lane.has(4), "the request is in the queue")
    await wait_until(lambda: lane.waits(1), "its waiter waits")
    connection.close()
    left = time.monotonic()
    await wait_until(lambda: lane.has(0), "the entries are taken back", poll_s=0.001)
    gone = time.monotonic()
    await wait_until(lambda: lane.waits(0), "the waiter is free", timeout_s=1, poll_s=0.001)
    free = time.monotonic()
    sys.stdout.write(
        f"entries gone after {(gone - left) * 1000:.0f} ms, waiter free after {(free - left) * 1000:.0f} ms"
    )
    with begin(gateway, "next"):
        await wait_until(lambda: lane.has(1), "the next request is in the queue")
        (entry,) = await lane.entries()
        assert b"bell" not in entry, "the next request has no waiter of its own"
    await wait_until(lambda: lane.has(0), "that is taken back too")


async def test_the_client_of_a_long_body_is_seen_to_leave(cluster: GatewayCluster, lane: Lane) -> None:
    """Its 300 KB are more than is read at once: the connection is read on all the same."""
    gateway = await cluster.start_gateway()
    connection = begin(gateway, *("x" * 3_000 for _ in range(100)))
    await wait_until(lambda: lane.has(4), "the request is in the queue")
    connection.close()
    await wait_until(lambda: lane.has(0), "the entries are taken back", timeout_s=5)


async def test_a_cancel_that_finds_its_connection_broken_is_repeated(
    cluster: GatewayCluster, lane: Lane, raw: redis.asyncio.Redis
) -> None:
    """Redis has closed it while nobody asked anything: the entries go all the same."""
    gateway = await cluster.start_gateway()
    connection = begin(gateway, "text")
    await wait_until(lambda: lane.has(1), "the request is in the queue")
    for each in await raw.client_list():
        if each["name"].startswith("gateway:") and each["name"].endswith(":submit"):
            await raw.client_kill_filter(_id=each["id"])
    connection.close()
    await wait_until(lambda: lane.has(0), "the entry is taken back")
    await wait_until(lambda: gateway.metric("redbatch_cancelled_entries_total") == 1, "it is counted")


async def test_many_clients_leave_at_once(cluster: GatewayCluster, lane: Lane) -> None:
    """With waiters and with the bell: nothing of 200 requests is left, and the gateway counts none in flight."""
    gateway = await cluster.start_gateway()
    connections = [begin(gateway, f"text {i}") for i in range(200)]
    await wait_until(lambda: lane.has(200), "the requests are in the queue")
    assert sum(b"bell" in entry for entry in await lane.entries()) == 200 - 7
    for connection in connections:
        connection.close()
    await wait_until(lambda: lane.has(0), "the entries are taken back")
    await wait_until(lambda: lane.waits(0), "the waiters are free", timeout_s=1)
    assert gateway.metric("redbatch_requests_in_flight") == 0
