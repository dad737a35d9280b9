"""Interactive requests and bulk, from end to end: who goes first, and that nobody starves."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import redis.asyncio

from api.dispatch.admission import QUEUE_TIME_SHARE
from api.dispatch.splitting import estimate_tokens
from shared import producer
from shared.connection import QueueConnections
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, has_vectors
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

MODEL = "simulated:base_ms=10,item_ms=2"
BATCH = 16


async def house_of(cluster: GatewayCluster, model: str = MODEL, **settings: object) -> GatewayProcess:
    """Returns a gateway whose worker runs 16 inputs in 40 ms, if it has no other model."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(model, max_batch_size=BATCH, **settings)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


async def ask(client: httpx.AsyncClient, gateway: GatewayProcess, texts: list[str], **named: object) -> bool:
    """Sends texts, with fields of the body by name; returns whether each came back as its own vector."""
    return has_vectors(await client.post(f"{gateway.url}/embed", json={"texts": texts, **named}), texts)


@pytest.mark.usefixtures("fake_heartbeat")
async def test_a_priority_names_the_lane(
    cluster: GatewayCluster, client: httpx.AsyncClient, raw: redis.asyncio.Redis
) -> None:
    """By the body or the header; what is neither of the two is refused."""
    gateway = await cluster.start_gateway()
    asked = {"text": "a", "timeout_ms": 50_000}
    sent = [
        asyncio.create_task(client.post(f"{gateway.url}/embed", json=asked | body, headers=headers))
        for body, headers in (
            ({}, {}),
            ({"priority": "bulk"}, {}),
            ({}, {"x-priority": "bulk"}),
            ({"priority": "interactive"}, {"x-priority": "bulk"}),
        )
    ]

    async def found() -> bool:
        return [int(await raw.xlen(lane)) for lane in cluster.keys.lanes] == [2, 2]

    await wait_until(found, "two entries are in each lane")
    refused = await gateway.send(client, "a", x_priority="urgent")
    assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_request")
    await cluster.start_worker()
    assert [each.status_code for each in await asyncio.gather(*sent)] == [200] * 4


async def test_interactive_requests_overtake_bulk(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """Thousands of bulk inputs wait, seconds of work; each interactive request is answered long before these are."""
    gateway = await house_of(cluster)
    bulk = [
        asyncio.create_task(
            ask(client, gateway, [f"bulk {number} {i}" for i in range(320)], priority="bulk", timeout_ms=60_000)
        )
        for number in range(12)
    ]
    await asyncio.sleep(0.3)
    times = []
    for number in range(20):
        began = time.monotonic()
        assert await ask(client, gateway, [f"interactive {number}"])
        times.append(time.monotonic() - began)
    assert not all(each.done() for each in bulk), "bulk still waits"
    sys.stdout.write(f"beside bulk: p50 {statistics.median(times) * 1000:.0f} ms, longest {max(times) * 1000:.0f} ms\n")
    assert all(await asyncio.gather(*bulk))


@asynccontextmanager
async def endless(client: httpx.AsyncClient, gateway: GatewayProcess) -> AsyncIterator[None]:
    """More interactive requests than a batch holds wait until the end of the block; each is answered rightly."""
    numbers = itertools.count()
    over = asyncio.Event()

    async def one_client() -> int:
        answered = 0
        while not over.is_set():
            answered += await ask(client, gateway, [f"interactive {next(numbers)}"], timeout_ms=30_000)
        return answered

    clients = [asyncio.create_task(one_client()) for _ in range(4 * BATCH)]
    try:
        yield
    finally:
        over.set()
        answered = await asyncio.gather(*clients)
    assert all(answered)
    assert sum(answered) == next(numbers)


@pytest.mark.parametrize(("share", "bound_ms"), [(0.3, 3_600_000), (0, 200)])
async def test_bulk_is_done_beside_endless_interactive_requests(
    cluster: GatewayCluster, client: httpx.AsyncClient, share: float, bound_ms: int
) -> None:
    """Still bulk has its share, and its age bound without one."""
    gateway = await house_of(cluster, bulk_share=share, bulk_age_bound_ms=bound_ms)
    async with endless(client, gateway):
        await asyncio.sleep(0.5)
        bulk = [f"bulk {i}" for i in range(2 * BATCH)]
        assert await ask(client, gateway, bulk, priority="bulk", timeout_ms=20_000)


@pytest.mark.exclusive
async def test_bulk_that_would_come_late_beside_interactive_requests_is_refused_at_once(
    cluster: GatewayCluster, client: httpx.AsyncClient, queue: QueueConnections, raw: redis.asyncio.Redis
) -> None:
    """By their tokens the whole worker would do these in less than its time, but bulk has a tenth of it."""
    gateway = await house_of(cluster, model="simulated:base_ms=10,item_ms=10")
    connection = queue.connection("look")

    async def rates() -> tuple[float, float]:
        beats = (await producer.queue_stats(connection, cluster.keys)).workers
        return sum(each.tokens_per_s for each in beats), sum(each.bulk_tokens_per_s for each in beats)

    since: float | None = None

    async def little_is_left() -> bool:
        nonlocal since
        whole, left = await rates()
        little = 0 < left < 0.6 * whole  # a tenth, but for what a busy machine takes from both
        since = (since or time.monotonic()) if little else None
        return since is not None and time.monotonic() - since > 2.5  # both tell and ask once a second

    async with endless(client, gateway):
        await wait_until(little_is_left, "the worker says that little is left for bulk", timeout_s=30, poll_s=0.1)
        whole, _ = await rates()
        number = int(0.9 * QUEUE_TIME_SHARE * 3.0 * whole / estimate_tokens("bulk 000"))
        texts, began = [f"bulk {i:03}" for i in range(number)], time.monotonic()
        body = {"texts": texts, "priority": "bulk", "timeout_ms": 3_000}
        refused = await client.post(f"{gateway.url}/embed", json=body)
        took_s = time.monotonic() - began
        assert (refused.status_code, error_of(refused)["code"]) == (429, "overloaded")
        assert took_s < 3.0, "it was not kept until its deadline"
        assert await ask(client, gateway, texts[:10], priority="bulk", timeout_ms=30_000)
