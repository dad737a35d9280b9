"""A client that disconnects: its entries are cancelled, and its waiter is free."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any

import pytest
import redis.asyncio

from shared.connection import BLOCK_S
from shared.keys import Keys
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.stall_detector import StallDetector
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("fake_heartbeat")]


class Lane:
    """The queue's interactive lane, and the connections that wait for replies."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._name = keys.lanes[0]

    async def entries(self) -> list[dict[bytes, bytes]]:
        """Returns the fields of each entry."""
        rows: Any = await self._client.xrange(self._name)
        return [dict(fields) for _, fields in rows]

    async def has_entries(self, number: int) -> bool:
        """Whether the lane has exactly `number` entries."""
        return int(await self._client.xlen(self._name)) == number

    async def has_waiters(self, number: int) -> bool:
        """Whether exactly `number` waiters of gateways, without the bell, are in a blocking pop."""
        blocked = [each["name"] for each in await self._client.client_list() if "b" in each["flags"]]
        return sum(":reply:" in name and ":bell" not in name for name in blocked) == number


@pytest.fixture
def lane(raw: redis.asyncio.Redis, keys: Keys) -> Lane:
    """The test's lane."""
    return Lane(raw, keys)


def send_request(gateway: GatewayProcess, *texts: str) -> socket.socket:
    """Sends a request and returns its open connection."""
    body = json.dumps({"texts": texts, "timeout_ms": 30_000}).encode()
    connection = socket.create_connection(("127.0.0.1", gateway.port))
    connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return connection


async def test_the_entries_of_a_disconnected_client_are_cancelled(cluster: GatewayCluster, lane: Lane) -> None:
    """Unclaimed entries of a client that disconnects are removed, and its waiter is free before its pop would end."""
    gateway = await cluster.start_gateway(reply_connections=2)
    connection = send_request(gateway, *(f"text {i}" for i in range(100)))
    await wait_until(lambda: lane.has_entries(4), "the request is in the queue")
    await wait_until(lambda: lane.has_waiters(1), "its waiter is in a blocking pop")
    connection.close()
    closed_at = time.monotonic()
    with StallDetector() as stalls:
        await wait_until(lambda: lane.has_entries(0), "the entries are removed", poll_s=0.001)
        removed_at = time.monotonic()
        await wait_until(lambda: lane.has_waiters(0), "the waiter is free", poll_s=0.001)
        free_at = time.monotonic()
    assert free_at - removed_at < BLOCK_S / 2 + stalls.longest_s
    sys.stdout.write(
        f"entries removed after {(removed_at - closed_at) * 1000:.0f} ms, "
        f"waiter free after {(free_at - closed_at) * 1000:.0f} ms"
    )
    with send_request(gateway, "next"):
        await wait_until(lambda: lane.has_entries(1), "the next request is in the queue")
        (entry,) = await lane.entries()
        assert b"bell" not in entry, "the next request has no waiter and uses the bell"
    await wait_until(lambda: lane.has_entries(0), "its entry is removed, too")


async def test_the_disconnect_of_a_client_with_a_long_body_is_detected(cluster: GatewayCluster, lane: Lane) -> None:
    """A body of 300 KB is more than one read; the connection is still read afterwards, so its close is detected."""
    gateway = await cluster.start_gateway()
    connection = send_request(gateway, *("x" * 3_000 for _ in range(100)))
    await wait_until(lambda: lane.has_entries(4), "the request is in the queue")
    connection.close()
    await wait_until(lambda: lane.has_entries(0), "the entries are removed", timeout_s=20)


async def test_a_cancel_over_a_broken_connection_is_repeated(
    cluster: GatewayCluster, lane: Lane, raw: redis.asyncio.Redis
) -> None:
    """If Redis has closed the idle connection for submits, the entry of a disconnected client is removed anyway."""
    gateway = await cluster.start_gateway()
    connection = send_request(gateway, "text")
    await wait_until(lambda: lane.has_entries(1), "the request is in the queue")
    for each in await raw.client_list():
        if each["name"].startswith("gateway:") and each["name"].endswith(":submit"):
            await raw.client_kill_filter(_id=each["id"])
    connection.close()
    await wait_until(lambda: lane.has_entries(0), "the entry is removed")
    await wait_until(lambda: gateway.metric("redbatch_cancelled_entries_total") == 1, "it is counted")


async def test_many_clients_disconnect_at_once(cluster: GatewayCluster, lane: Lane) -> None:
    """If 200 clients disconnect, with waiters or the bell, no entry remains and no request counts as in flight."""
    gateway = await cluster.start_gateway()
    connections = [send_request(gateway, f"text {i}") for i in range(200)]
    await wait_until(lambda: lane.has_entries(200), "the requests are in the queue")
    assert sum(b"bell" in entry for entry in await lane.entries()) == 200 - 7
    for connection in connections:
        connection.close()
    await wait_until(lambda: lane.has_entries(0), "the entries are removed")
    await wait_until(lambda: lane.has_waiters(0), "the waiters are free")
    assert gateway.metric("redbatch_requests_in_flight") == 0
