"""Deadlines: every request ends, and at its time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest
import redis.asyncio

from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

LATE_S = 1.0  # of which the product takes a few milliseconds, and a busy machine the rest


@pytest.mark.parametrize("timeout_ms", [50, 700])
async def test_without_an_answer_the_deadline_is_kept(
    cluster: GatewayCluster, fake_heartbeat: None, raw: redis.asyncio.Redis, timeout_ms: int
) -> None:
    """Nobody serves the queue: 504 at the deadline, not before and hardly after, and the work is taken back."""
    gateway = await cluster.start_gateway()
    began = time.monotonic()
    answer = await asyncio.to_thread(gateway.embed, {"text": "a", "timeout_ms": timeout_ms})
    took = time.monotonic() - began
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert timeout_ms / 1000 <= took <= timeout_ms / 1000 + LATE_S

    async def empty() -> bool:
        return int(await raw.xlen(cluster.keys.lanes[0])) == 0

    await wait_until(empty, "the entry is taken back")


async def test_a_model_that_is_too_slow_keeps_nobody_past_the_deadline(cluster: GatewayCluster) -> None:
    """The batch runs on; the client has its 504. The next request is served."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("simulated:base_ms=2500,item_ms=0"))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    began = time.monotonic()
    answer = await asyncio.to_thread(gateway.embed, {"text": "a"}, x_timeout_ms="300")
    took = time.monotonic() - began
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert 0.3 <= took <= 0.3 + LATE_S
    assert (await asyncio.to_thread(gateway.embed, {"text": "b"})).status_code == 200


async def test_a_deadline_that_is_over_at_once_is_a_504(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None
) -> None:
    """With a millisecond to live some requests do not even reach the queue; that is no fault of Redis'."""
    gateway = await cluster.start_gateway()
    answers = await asyncio.gather(*(gateway.send(client, f"{i}", x_timeout_ms="1") for i in range(100)))
    assert Counter((each.status_code, error_of(each)["code"]) for each in answers) == {(504, "deadline_exceeded"): 100}
