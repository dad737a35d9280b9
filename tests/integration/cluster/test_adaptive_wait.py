"""A worker with the adaptive batch wait, on a real Redis."""

from __future__ import annotations

import re

import pytest

from tests import plain_http
from tests.integration.cluster.client_pool import ClientPool
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster, log_lines
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

CLIENTS = 16


def batches_of(worker: Program) -> tuple[float, float]:
    """Returns the numbers of batches and of inputs that a worker has run, from its metrics."""
    port = next(line["admin_port"] for line in log_lines(worker) if "admin_port" in line)
    page = plain_http.get(f"http://127.0.0.1:{port}/metrics").text
    batches, inputs = (
        re.findall(rf"^redbatch_batch_size_{name} (\S+)$", page, re.MULTILINE) for name in ("count", "sum")
    )
    return float(batches[0]), float(inputs[0])


async def mean_batch_size(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, model: str, wait: str, *, requests: int, timeout_ms: int
) -> float:
    """Runs clients that send request after request; returns the mean batch size after the first third of requests.

    Raises AssertionError if a request does not get its own vectors before its deadline.
    """
    gateway = await start_dispatcher()
    worker = await cluster.start_worker(model, max_batch_wait_ms=wait)
    await wait_until(lambda: gateway.monitor.missing() == [], "the gateway sees the worker")
    first, rest = requests // 3, requests - requests // 3
    for number in (first, rest):
        before = batches_of(worker)
        pool = ClientPool([gateway], number, CLIENTS, timeout_ms=timeout_ms)
        await pool.run()
        assert pool.outcomes == {"ok": number}, "a request failed or got a foreign vector"
    batches, inputs = (after - earlier for after, earlier in zip(batches_of(worker), before, strict=True))
    return inputs / batches


@pytest.mark.exclusive
async def test_the_adaptive_wait_keeps_deadlines(cluster: GatewayCluster, start_dispatcher: StartDispatcher) -> None:
    """With 16 clients and deadlines about sixty times as long as a batch of 16 takes, all requests are answered."""
    await mean_batch_size(
        cluster, start_dispatcher, "simulated:base_ms=5,item_ms=3", "auto", requests=480, timeout_ms=3_000
    )


@pytest.mark.exclusive
@pytest.mark.parametrize(("wait", "minimum", "maximum"), [("0", 0.0, 0.6), ("auto", 0.65, 1.0)])
async def test_the_adaptive_wait_joins_alternating_clients(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, wait: str, minimum: float, maximum: float
) -> None:
    """If a batch takes 0.1 s at any size, clients form two groups of half the size without a wait, and one with it."""
    size = await mean_batch_size(
        cluster, start_dispatcher, "simulated:base_ms=100,item_ms=1", wait, requests=240, timeout_ms=60_000
    )
    assert minimum <= size / CLIENTS <= maximum
