"""Deadlines: every request ends at its deadline at the latest."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace

import httpx
import pytest
import redis.asyncio

from shared import consumer
from shared.messages import LOADING, READY, STANDBY, Heartbeat
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of
from tests.stall_detector import StallDetector
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

MAX_LATE_S = 2.0  # the gateway takes a few milliseconds of it, and a busy machine the rest, beside its stalls


@pytest.mark.parametrize("timeout_ms", [50, 700])
async def test_an_unanswered_request_ends_at_its_deadline(
    cluster: GatewayCluster, fake_heartbeat: None, raw: redis.asyncio.Redis, timeout_ms: int
) -> None:
    """If no worker serves the queue, a 504 comes at the deadline, within 2 s after it, and the entry is removed."""
    gateway = await cluster.start_gateway()
    start = time.monotonic()
    with StallDetector() as stalls:
        answer = await asyncio.to_thread(gateway.embed, {"text": "a", "timeout_ms": timeout_ms})
    took_s = time.monotonic() - start
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert "Allow more time" in error_of(answer)["message"]
    assert "retry-after" not in answer.headers
    assert timeout_ms / 1000 <= took_s <= timeout_ms / 1000 + MAX_LATE_S + stalls.longest_s

    async def is_empty() -> bool:
        return int(await raw.xlen(cluster.keys.lanes[0])) == 0

    await wait_until(is_empty, "the entry is removed")


@pytest.mark.parametrize(
    ("state", "reason"), [(LOADING, "a worker is loading the model"), (STANDBY, "no worker is ready")]
)
async def test_a_request_to_a_model_that_still_loads_says_so(
    cluster: GatewayCluster, queue: QueueConnections, state: str, reason: str
) -> None:
    """Until the deadline it waits for the worker; the 504 then says what the worker does, and when to try again."""
    gateway = await cluster.start_gateway()
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, state, 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
    await wait_until(lambda: plain_http.get(f"{gateway.url}/v1/models").json()["data"], "the worker is seen")
    answer = await asyncio.to_thread(gateway.embed, {"text": "a", "timeout_ms": 100})
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert reason in error_of(answer)["message"]
    assert 1 <= int(answer.headers["retry-after"]) <= 2
    assert 1_000 <= int(answer.headers["retry-after-ms"]) <= 2_000


async def test_a_slow_model_does_not_delay_the_deadline(cluster: GatewayCluster) -> None:
    """If a batch runs past the deadline, the client gets a 504 in time, and the next request is served."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("simulated:base_ms=2500,item_ms=0"))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    start = time.monotonic()
    with StallDetector() as stalls:
        answer = await asyncio.to_thread(gateway.embed, {"text": "a"}, x_timeout_ms="300")
    took_s = time.monotonic() - start
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert 0.3 <= took_s <= 0.3 + MAX_LATE_S + stalls.longest_s
    assert (await asyncio.to_thread(gateway.embed, {"text": "b"})).status_code == 200


async def test_a_deadline_of_one_millisecond_is_a_504(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None
) -> None:
    """Requests with a timeout of 1 ms, some of which never reach the queue, get a 504 and not a fault of Redis."""
    gateway = await cluster.start_gateway()
    answers = await asyncio.gather(*(gateway.send(client, f"{i}", x_timeout_ms="1") for i in range(100)))
    assert Counter((each.status_code, error_of(each)["code"]) for each in answers) == {(504, "deadline_exceeded"): 100}


async def test_the_wait_for_the_models_prompts_counts_towards_the_deadline(
    cluster: GatewayCluster, queue: QueueConnections
) -> None:
    """A request that waited for a worker to load the model has only the rest of its time for the answer."""
    gateway = await cluster.start_gateway()
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, LOADING, 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
    await wait_until(lambda: plain_http.get(f"{gateway.url}/v1/models").json()["data"], "the worker is seen")
    start = time.monotonic()
    body = {"text": "a", "timeout_ms": 3_000, "input_type": "query"}
    with StallDetector() as stalls:
        sent = asyncio.create_task(asyncio.to_thread(gateway.embed, body))
        await asyncio.sleep(2.0)
        ready = replace(beat, state=READY, prompts=("query",))
        await consumer.heartbeat(queue.connection("ghost"), queue.keys, ready, 60_000)
        answer = await sent
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert 3.0 <= time.monotonic() - start < 3.0 + MAX_LATE_S + stalls.longest_s
