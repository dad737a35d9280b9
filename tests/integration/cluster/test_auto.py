"""A worker whose wait is adaptive, behind a real Redis."""

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
    """Returns how many batches a worker has run, and of how many inputs, as its metrics tell."""
    port = next(line["admin_port"] for line in log_lines(worker) if "admin_port" in line)
    page = plain_http.get(f"http://127.0.0.1:{port}/metrics").text
    number, inputs = (
        re.findall(rf"^redbatch_batch_size_{name} (\S+)$", page, re.MULTILINE) for name in ("count", "sum")
    )
    return float(number[0]), float(inputs[0])


async def served(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, model: str, wait: str, *, requests: int, timeout_ms: int
) -> float:
    """Has clients ask again and again; returns the mean size of the batches after the first third of the requests."""
    gateway = await start_dispatcher()
    worker = await cluster.start_worker(model, max_batch_wait_ms=wait)
    await wait_until(lambda: gateway.monitor.missing() == [], "the gateway sees the worker")
    first, rest = requests // 3, requests - requests // 3
    for number in (first, rest):
        before = batches_of(worker)
        pool = ClientPool([gateway], number, CLIENTS, timeout_ms=timeout_ms)
        await pool.run()
        assert pool.outcomes == {"ok": number}, "each gets its own vector before its deadline"
    batches, inputs = (after - was for after, was in zip(batches_of(worker), before, strict=True))
    return inputs / batches


async def test_answers_are_right(cluster: GatewayCluster, start_dispatcher: StartDispatcher) -> None:
    """16 clients that leave each request some sixty times as long as a batch of all of them takes."""
    await served(cluster, start_dispatcher, "simulated:base_ms=5,item_ms=3", "auto", requests=480, timeout_ms=3_000)


@pytest.mark.exclusive
@pytest.mark.parametrize(("wait", "least", "most"), [("0", 0.0, 0.6), ("auto", 0.65, 1.0)])
async def test_clients_that_take_turns_share_a_batch(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, wait: str, least: float, most: float
) -> None:
    """Where a batch takes 0.1 s whatever its size: without a wait in two groups, half of them each; else together."""
    size = await served(
        cluster, start_dispatcher, "simulated:base_ms=100,item_ms=1", wait, requests=240, timeout_ms=60_000
    )
    assert least <= size / CLIENTS <= most
