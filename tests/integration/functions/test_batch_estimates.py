"""What an engine has learned of its batches, and the requests that it refuses for that: all parts are real."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
import redis

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, log_lines
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

MODEL = "tests.integration.functions.function_models:Weighed"
SHORT, LONG = 3, 300
"""Costs of inputs, in tokens. At the rate of the short ones a long one would take 40 s."""


async def send(gateway: GatewayProcess, *costs: int) -> httpx.Response:
    """Sends a request, with the deadline of 10 s that it has unless it sets one."""
    return await asyncio.to_thread(plain_http.post, f"{gateway.url}/predict", json={"inputs": costs}, timeout=60)


async def test_small_slow_batches_refuse_no_larger_ones(cluster: GatewayCluster) -> None:
    """Batches of three tokens take 0.4 s, all of it fixed; this only shows when something larger runs.

    A batch has room for one of the long inputs of a request: if the other one expired, the request would fail.
    """
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(MODEL, model_args='{"batch_s": 0.4}', max_batch_tokens=LONG)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    answers = [await send(gateway, SHORT) for _ in range(3)]
    answers += [await send(gateway, LONG, LONG - number) for number in range(1, 5)]
    assert [(each.status_code, each.text[:120]) for each in answers if each.status_code != 200] == []
    assert all(each.headers["x-batch-size"] == "1" for each in answers), "a request of two ran as two batches"


async def test_what_is_refused_before_it_runs_costs_the_tenant_nothing(cluster: GatewayCluster) -> None:
    """A request that no batch can answer in time gets 504 at once, and its tokens are given back."""
    limits = {"tenant_tokens_per_s": 0.001, "tenant_burst_tokens": 4}
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(**limits),
        cluster.start_worker(MODEL, model_args='{"batch_s": 1.0}', max_batch_tokens=LONG),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    def balance() -> float:
        with redis.Redis.from_url(cluster.redis_url, protocol=2, decode_responses=True) as client:
            return float(str(client.hget(cluster.keys.tenants, "")).split()[0])

    assert (await send(gateway, LONG)).status_code == 200
    for _ in range(3):
        assert balance() == pytest.approx(3, abs=0.1)
        refused = {"inputs": [LONG, LONG - 1], "timeout_ms": 500}
        answer = await asyncio.to_thread(plain_http.post, f"{gateway.url}/predict", json=refused, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
        await wait_until(lambda: balance() > 2.5, "its two tokens are given back")
    assert (await send(gateway, *[LONG] * 4)).status_code == 429, "more than is left"


async def test_the_log_has_the_estimate_for_which_requests_are_refused(cluster: GatewayCluster) -> None:
    """One line with the estimate and the time that was left, however many requests there are; the rest is counted."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(MODEL, model_args='{"batch_s": 1.0}', max_batch_tokens=LONG)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert (await send(gateway, LONG)).status_code == 200
    refused = {"inputs": [LONG, LONG - 1], "timeout_ms": 500}
    for _ in range(3):
        answer = await asyncio.to_thread(plain_http.post, f"{gateway.url}/predict", json=refused, timeout=60)
        assert answer.status_code == 504
    [line] = [each for each in log_lines(worker) if each["msg"].startswith("inputs were refused")]
    assert line["level"] == "warning"
    assert 0 < line["left_s"] <= 0.51  # processes read their clocks at different moments
    assert line["batch_s"] > 0.9


@pytest.mark.long
async def test_clients_that_leave_lower_no_rate(cluster: GatewayCluster) -> None:
    """A large request expires while it runs, and light use follows: the next burst is not refused for its time."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("minilm"))
    await wait_until(lambda: gateway.missing() == [], "the model is loaded", timeout_s=60)

    async def embed(texts: list[str], **fields: object) -> httpx.Response:
        body = {"texts": texts, **fields}
        return await asyncio.to_thread(plain_http.post, f"{gateway.url}/embed", json=body, timeout=60)

    expired = await embed([f"{number} " + 80 * "word " for number in range(400)], timeout_ms=300)
    assert expired.status_code == 504
    for number in range(20):
        assert (await embed([f"light {number}"])).status_code == 200
    await asyncio.sleep(1.5)  # until the gateway has the rate of the last heartbeat
    burst = await asyncio.gather(*(embed([f"burst {number} " + 20 * "word "]) for number in range(64)))
    assert Counter(each.status_code for each in burst) == {200: 64}
