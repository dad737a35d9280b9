"""Requests that share stream entries, through real gateways, workers and Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from typing import Any

import httpx
import pytest
import pytest_asyncio
import redis.asyncio

from shared import consumer
from shared.keys import Keys
from shared.messages import Heartbeat
from shared.process.tasks import cancel_and_wait
from shared.queue_connections import QueueConnections
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    log_lines,
    metric,
    null_vector,
    vector_bytes,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

CLIENTS = 64
WAVES = 20


@pytest_asyncio.fixture
async def absent_worker(queue: QueueConnections) -> None:
    """Sends one heartbeat of a worker that does not exist, with the bounds of its batches."""
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
    beat = dataclasses.replace(beat, max_batch_tokens=16_384, max_batch_size=64)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)


async def send_together(gateway: GatewayProcess, texts: list[str]) -> list[dict[str, Any]]:
    """Sends each text over its own connection, all at the same time, and returns the bodies of the answers."""
    streams = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", gateway.port) for _ in texts))
    for (_, writer), text in zip(streams, texts, strict=True):
        body = json.dumps({"text": text}).encode()
        writer.write(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
        )
    answers = await asyncio.gather(*(reader.read() for reader, _ in streams))
    for _, writer in streams:
        writer.close()
    return [json.loads(each.partition(b"\r\n\r\n")[2]) for each in answers]


async def test_each_client_gets_the_vector_of_its_own_text(cluster: GatewayCluster, raw: redis.asyncio.Redis) -> None:
    """Under load, several requests share an entry: fewer are submitted and answered than there are requests."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    before: Any = await raw.info("commandstats")
    for wave in range(WAVES):
        texts = [f"text {i} of wave {wave}" for i in range(CLIENTS)]
        for text, answer in zip(texts, await send_together(gateway, texts), strict=True):
            assert vector_bytes(answer["embedding"]) == null_vector(text)
    after: Any = await raw.info("commandstats")
    added = after["cmdstat_xadd"]["calls"] - before.get("cmdstat_xadd", {"calls": 0})["calls"]
    coalesced = gateway.metric("redbatch_coalesced_requests_total")
    assert 0 < coalesced <= CLIENTS * WAVES
    assert added <= CLIENTS * WAVES - coalesced / 2
    assert gateway.metric("redbatch_requests_in_flight") == 0
    assert metric(worker, "redbatch_inputs_total") >= CLIENTS * WAVES


async def test_an_invalid_input_fails_alone(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """Of the requests that arrive together, only those get an error that are its reason; all others get vectors."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker("simulated:base_ms=5,item_ms=0", max_input_tokens=64)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    async def call(i: int) -> httpx.Response:
        text = "\ud800" if i % 10 == 3 else f"text {i}"
        return await client.post(
            f"{gateway.url}/embed", content=b'{"text": "%s"}' % text.encode("ascii", "backslashreplace")
        )

    for _ in range(5):
        answers = await asyncio.gather(*(call(i) for i in range(60)))
        assert [each.status_code for each in answers] == [400 if i % 10 == 3 else 200 for i in range(60)]
    assert error_of(answers[3])["code"] == "invalid_request"


@pytest.mark.usefixtures("absent_worker")
async def test_entries_say_how_many_requests_share_them(
    cluster: GatewayCluster, client: httpx.AsyncClient, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """In Redis, the inputs of an entry and its number of requests are those of all that wait."""
    gateway = await cluster.start_gateway()
    calls = [asyncio.create_task(gateway.send(client, f"text {i}", x_timeout_ms="6000")) for i in range(CLIENTS)]

    async def entries() -> list[dict[bytes, bytes]]:
        rows: Any = await raw.xrange(keys.lanes[0])
        return [dict(fields) for _, fields in rows]

    async def are_in_queue() -> bool:
        return sum(int(each[b"n"]) for each in await entries()) == CLIENTS

    await wait_until(are_in_queue, "all requests are in the queue")
    sizes = Counter(int(each.get(b"coalesced", b"1")) for each in await entries())
    assert all(int(each[b"n"]) == int(each.get(b"coalesced", b"1")) for each in await entries())
    assert sum(sizes.values()) < CLIENTS
    assert max(sizes) <= 16
    assert gateway.metric("redbatch_requests_in_flight") == CLIENTS
    answers = await asyncio.gather(*calls)
    assert [error_of(each)["code"] for each in answers] == ["deadline_exceeded"] * CLIENTS
    assert not [each for each in log_lines(gateway.program) if each["level"] == "error" and "exception" in each]


@pytest.mark.usefixtures("absent_worker")
async def test_requests_can_have_entries_of_their_own(
    cluster: GatewayCluster, client: httpx.AsyncClient, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """With `requests_per_entry` 1."""
    gateway = await cluster.start_gateway(requests_per_entry=1)
    calls = [asyncio.create_task(gateway.send(client, f"text {i}", x_timeout_ms="60000")) for i in range(CLIENTS)]

    async def are_in_queue(number: int) -> bool:
        return int(await raw.xlen(keys.lanes[0])) == number

    await wait_until(lambda: are_in_queue(CLIENTS), "each request has an entry")
    await cancel_and_wait(calls)
    await wait_until(lambda: are_in_queue(0), "the entries are removed")
