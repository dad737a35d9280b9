"""What an engine has learned of its batches, and the requests that it refuses for that: all parts are real."""

from __future__ import annotations

import asyncio

import httpx
import pytest

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
    assert 0 < line["left_s"] <= 0.5 < 0.9 <= line["batch_s"]
