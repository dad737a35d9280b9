"""Requests in flight whose data in Redis is lost: their gateway submits them again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from api import metrics
from api.dialects.request import InferenceRequest
from api.dispatch import reconciler
from api.dispatch.inflight import RESUBMIT_INTERVAL_S
from shared.keys import GROUP, Keys
from shared.process.limited_log import LimitedLog
from tests.integration.cluster.client_pool import ClientPool, is_result_for
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster, metric
from tests.proxy import FaultProxy, ReplyAction
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

Fault = Callable[[redis.asyncio.Redis, Keys], Awaitable[object]]

FAULTS: dict[str, Fault] = {
    "all data deleted": lambda raw, _keys: raw.flushall(),
    "stream deleted": lambda raw, keys: raw.delete(keys.lanes[0]),
    "group destroyed": lambda raw, keys: raw.xgroup_destroy(keys.lanes[0], GROUP),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "unread"])
async def test_requests_survive_the_loss_of_the_queue(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, raw: redis.asyncio.Redis, fault: str, claimed: bool
) -> None:
    """Every request of two gateways is answered within 30 s, by a waiter or the bell; the deadlines are 60 s."""
    one, two = await start_dispatcher(), await start_dispatcher()
    worker = await cluster.start_worker("simulated:base_ms=100,item_ms=0", max_batch_size=64)
    await wait_until(lambda: one.monitor.missing() == two.monitor.missing() == [], "both gateways see the worker")
    if not claimed:
        worker.signal(signal.SIGSTOP)
    pool = ClientPool([one, two], 60, 60, request_sizes=(1, 1, 70))
    running = asyncio.create_task(pool.run())
    lane = cluster.keys.lanes[0]

    async def in_queue() -> bool:
        if claimed:
            return int((await raw.xpending(lane, GROUP))["pending"]) > 0
        rows: Any = await raw.xrange(lane)
        return sum(int(fields[b"n"]) for _, fields in rows) == 40 + 20 * 70

    await wait_until(in_queue, "requests are in the queue")
    await FAULTS[fault](raw, cluster.keys)
    worker.signal(signal.SIGCONT)
    start = time.monotonic()
    await running
    assert pool.outcomes == {"ok": 60}
    assert time.monotonic() - start < 30


async def test_a_lost_entry_is_added_again_at_most_once_a_second(
    cluster: GatewayCluster,
    start_dispatcher: StartDispatcher,
    raw: redis.asyncio.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data that is lost again and again, or a bell that leads elsewhere, must not make queues or logs grow."""
    monkeypatch.setattr(reconciler, "limited_log", limited_log := LimitedLog())
    dispatcher = await start_dispatcher()
    worker = await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    worker.signal(signal.SIGSTOP)
    before = metrics.RESUBMITTED_ENTRIES._value.get()
    request = asyncio.create_task(dispatcher.answer(InferenceRequest(("a",), 30_000)))
    lane, losses, began = cluster.keys.lanes[0], 0, time.monotonic()

    def num_added() -> float:
        return float(metrics.RESUBMITTED_ENTRIES._value.get() - before)

    with capture_logs() as logged:
        try:
            while time.monotonic() - began < 3.2 or (min(losses, num_added()) < 2 and not request.done()):
                losses += int(await raw.delete(lane, cluster.keys.epoch) == 2)
                await asyncio.sleep(0.05)
        finally:
            worker.signal(signal.SIGCONT)
        seconds = time.monotonic() - began
        limited_log.flush()
    lines = [line for line in logged if line["event"] == "lost entries are submitted again" and line["redis"]]
    first, *summaries = [(line.get("n"), "repeated" in line) for line in lines]
    assert (first, {*summaries}, len(summaries) <= 1 + seconds / 10) == ((1, False), {(None, True)}, True)
    assert losses > 1
    assert 1 < num_added() <= 1 + seconds / RESUBMIT_INTERVAL_S
    assert is_result_for(await request, ["a"])


async def test_a_request_survives_the_loss_of_its_first_replies(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, proxy: FaultProxy, raw: redis.asyncio.Redis
) -> None:
    """If Redis' replies to the submit and to the collect are lost, the request is answered when the submit succeeds."""
    far = await start_dispatcher(proxy.url, redis_timeout_s=1.0, reply_connections=2)
    await cluster.start_worker()
    await wait_until(lambda: far.monitor.missing() == [], "the gateway sees the worker")
    await asyncio.gather(
        far.answer(InferenceRequest(("x",), 20_000)), far.answer(InferenceRequest(("y",), 20_000))
    )  # now Redis has cached all scripts
    holder = asyncio.create_task(far.answer(InferenceRequest(("occupies the waiter",), 20_000)))
    lost: list[str] = []

    def reply_action(name: str) -> ReplyAction:
        purpose = name.rsplit(":", 1)[1]
        if purpose not in ("submit", "collect") or purpose in lost:
            return ReplyAction.PASS
        lost.append(purpose)
        return ReplyAction.DROP if purpose == "submit" else ReplyAction.CUT

    await asyncio.sleep(0)
    proxy.reply_action = reply_action
    assert is_result_for(await far.answer(InferenceRequest(("a",), 8_000)), ["a"])
    assert sorted(lost) == ["collect", "submit"]
    await holder


async def test_a_worker_that_hangs_during_the_loss_commits_nothing(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, raw: redis.asyncio.Redis
) -> None:
    """It held a batch when all data was lost and another worker answered the request: its late commit finds nothing."""
    dispatcher = await start_dispatcher()
    hung = await cluster.start_worker("simulated:base_ms=4000,item_ms=0")
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    request = asyncio.create_task(dispatcher.answer(InferenceRequest(("a", "b"), 60_000)))

    async def is_running() -> bool:  # held but not running, it would be dropped at the loss, never committed
        return any([await raw.get(key) async for key in raw.scan_iter(match=cluster.keys.begun("*"))])

    await wait_until(is_running, "the worker runs the request")
    hung.signal(signal.SIGSTOP)
    await raw.flushall()
    try:
        await cluster.start_worker()
        assert is_result_for(await request, ["a", "b"])
    finally:
        hung.signal(signal.SIGCONT)
    await wait_until(
        lambda: metric(hung, 'redbatch_commits_total{outcome="found nothing"}') == 1, "its commit came late"
    )
    assert is_result_for(await dispatcher.answer(InferenceRequest(("c",), 20_000)), ["c"])
