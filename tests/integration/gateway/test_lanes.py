"""Interactive and bulk requests from end to end: interactive ones go first, and bulk does not starve."""

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
from shared.queue_connections import QueueConnections
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, has_vectors
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

MODEL = "simulated:base_ms=10,item_ms=2"
BATCH = 16


async def start(cluster: GatewayCluster, model: str = MODEL, **settings: object) -> GatewayProcess:
    """Starts a gateway and a worker, which runs 16 inputs in about 40 ms by default; returns the gateway."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(model, max_batch_size=BATCH, **settings)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


async def embed(client: httpx.AsyncClient, gateway: GatewayProcess, texts: list[str], **named: object) -> bool:
    """Sends texts and more fields of the body; returns whether the answer contains the vector of each text."""
    return has_vectors(await client.post(f"{gateway.url}/embed", json={"texts": texts, **named}), texts)


@pytest.mark.usefixtures("fake_heartbeat")
async def test_the_priority_selects_the_lane(
    cluster: GatewayCluster, client: httpx.AsyncClient, raw: redis.asyncio.Redis
) -> None:
    """A priority in the body or the header selects the lane, the body first; an unknown priority is refused."""
    gateway = await cluster.start_gateway()
    common = {"text": "a", "timeout_ms": 50_000}
    sent = [
        asyncio.create_task(client.post(f"{gateway.url}/embed", json=common | body, headers=headers))
        for body, headers in (
            ({}, {}),
            ({"priority": "bulk"}, {}),
            ({}, {"x-priority": "bulk"}),
            ({"priority": "interactive"}, {"x-priority": "bulk"}),
        )
    ]

    async def are_in_lanes() -> bool:
        return [int(await raw.xlen(lane)) for lane in cluster.keys.lanes] == [2, 2]

    await wait_until(are_in_lanes, "two entries are in each lane")
    refused = await gateway.send(client, "a", x_priority="urgent")
    assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_request")
    await cluster.start_worker()
    assert [each.status_code for each in await asyncio.gather(*sent)] == [200] * 4


async def test_interactive_requests_overtake_bulk(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """While thousands of bulk inputs wait, seconds of work, interactive requests are answered before them."""
    gateway = await start(cluster)
    bulk = [
        asyncio.create_task(
            embed(client, gateway, [f"bulk {number} {i}" for i in range(320)], priority="bulk", timeout_ms=60_000)
        )
        for number in range(12)
    ]
    await asyncio.sleep(0.3)
    times_s = []
    for number in range(20):
        start_time = time.monotonic()
        assert await embed(client, gateway, [f"interactive {number}"])
        times_s.append(time.monotonic() - start_time)
    assert not all(each.done() for each in bulk), "the bulk requests have ended already"
    sys.stdout.write(
        f"beside bulk: p50 {statistics.median(times_s) * 1000:.0f} ms, maximum {max(times_s) * 1000:.0f} ms\n"
    )
    assert all(await asyncio.gather(*bulk))


@asynccontextmanager
async def continuous_load(client: httpx.AsyncClient, gateway: GatewayProcess) -> AsyncIterator[None]:
    """During the block more interactive requests than a batch holds are in flight; each must get its own vectors."""
    numbers = itertools.count()
    stop = asyncio.Event()

    async def one_client() -> int:
        num_answered = 0
        while not stop.is_set():
            num_answered += await embed(client, gateway, [f"interactive {next(numbers)}"], timeout_ms=30_000)
        return num_answered

    clients = [asyncio.create_task(one_client()) for _ in range(4 * BATCH)]
    try:
        yield
    finally:
        stop.set()
        counts = await asyncio.gather(*clients)
    assert all(counts)
    assert sum(counts) == next(numbers)


@pytest.mark.parametrize(("share", "bound_ms"), [(0.3, 3_600_000), (0, 200)])
async def test_bulk_completes_under_continuous_interactive_load(
    cluster: GatewayCluster, client: httpx.AsyncClient, share: float, bound_ms: int
) -> None:
    """Under continuous interactive load bulk requests complete, by the bulk share or, without one, the age bound."""
    gateway = await start(cluster, bulk_share=share, bulk_age_bound_ms=bound_ms)
    async with continuous_load(client, gateway):
        await asyncio.sleep(0.5)
        bulk = [f"bulk {i}" for i in range(2 * BATCH)]
        assert await embed(client, gateway, bulk, priority="bulk", timeout_ms=20_000)


@pytest.mark.exclusive
async def test_bulk_that_cannot_meet_its_deadline_is_refused_at_once(
    cluster: GatewayCluster, client: httpx.AsyncClient, queue: QueueConnections, raw: redis.asyncio.Redis
) -> None:
    """A bulk request that only the whole worker could finish in time is refused at once, as bulk gets a tenth of it."""
    gateway = await start(cluster, model="simulated:base_ms=10,item_ms=10")
    connection = queue.connection("look")

    async def rates() -> tuple[float, float]:
        beats = (await producer.queue_stats(connection, cluster.keys)).workers
        return sum(each.tokens_per_s for each in beats), sum(each.bulk_tokens_per_s for each in beats)

    since: float | None = None

    async def little_is_left() -> bool:
        nonlocal since
        whole, for_bulk = await rates()
        little = 0 < for_bulk < 0.6 * whole  # a tenth, apart from the effect of a busy machine on both
        since = (since or time.monotonic()) if little else None
        return since is not None and time.monotonic() - since > 2.5  # both report and poll once a second

    async with continuous_load(client, gateway):
        await wait_until(little_is_left, "the worker reports little capacity for bulk", timeout_s=30, poll_s=0.1)
        whole, _ = await rates()
        number = int(0.9 * QUEUE_TIME_SHARE * 3.0 * whole / estimate_tokens("bulk 000"))
        texts, sent_at = [f"bulk {i:03}" for i in range(number)], time.monotonic()
        body = {"texts": texts, "priority": "bulk", "timeout_ms": 3_000}
        refused = await client.post(f"{gateway.url}/embed", json=body)
        took_s = time.monotonic() - sent_at
        assert (refused.status_code, error_of(refused)["code"]) == (429, "overloaded")
        assert took_s < 3.0, "it was refused only at its deadline"
        assert await embed(client, gateway, texts[:10], priority="bulk", timeout_ms=30_000)
