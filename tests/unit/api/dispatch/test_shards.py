"""Which shard a gateway uses, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from api.dialects.request import InferenceRequest
from api.dispatch.dispatcher import Dispatcher
from api.dispatch.shards import ShardedDispatcher
from api.settings import GatewaySettings
from api.tenants import ANONYMOUS, Tenant
from shared import consumer
from shared.messages import READY, SCORE, Heartbeat, Options
from shared.process.tasks import cancel_and_wait
from shared.queue_connections import QueueConnections
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

CHOICES = 60


@pytest_asyncio.fixture
async def dispatchers(redis_url: str, queue: QueueConnections) -> AsyncIterator[list[Dispatcher]]:
    """Dispatchers of three shards, which here are one queue, with a ready worker."""
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 8, READY, 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
    dispatchers = [Dispatcher(GatewaySettings(redis_url=redis_url), queue.keys.queue) for _ in range(3)]
    for each in dispatchers:
        await each.start()
    yield dispatchers
    for each in dispatchers:
        await each.stop()


@pytest.fixture
def sharded(dispatchers: list[Dispatcher]) -> ShardedDispatcher:
    """Sends requests to these."""
    sharded = ShardedDispatcher(dispatchers)
    sharded.check()
    return sharded


@pytest.mark.parametrize(("hold_s", "chosen"), [(60.0, 1), (-1.0, 3)])
async def test_a_gateway_keeps_to_its_choice_for_a_moment(
    sharded: ShardedDispatcher, monkeypatch: pytest.MonkeyPatch, hold_s: float, chosen: int
) -> None:
    """Requests that come together go to one shard; over time, to all of them."""
    monkeypatch.setattr("api.dispatch.shards.HOLD_S", hold_s)
    assert len({sharded.choose(ANONYMOUS) for _ in range(CHOICES)}) == chosen


async def test_a_named_tenant_has_one_shard(sharded: ShardedDispatcher) -> None:
    """If that is passed over, it is another one, which is always the same."""
    tenants = [Tenant(f"{i}") for i in range(CHOICES)]
    first = [sharded.choose(each) for each in tenants]
    second = [sharded.choose(each, other_than=shard) for each, shard in zip(tenants, first, strict=True)]
    assert set(first) == set(second) == {0, 1, 2}
    assert not any(one == other for one, other in zip(first, second, strict=True))
    assert [sharded.choose(each) for each in tenants] == first


async def test_a_redis_low_on_memory_is_for_named_tenants_alone(
    sharded: ShardedDispatcher, dispatchers: list[Dispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would refuse what others take; a named tenant has its quota there. If all are low, all are chosen."""
    monkeypatch.setattr("api.dispatch.shards.HOLD_S", -1.0)
    tenants = [Tenant(f"{i}") for i in range(CHOICES)]
    first = [sharded.choose(each) for each in tenants]
    for each, chosen in zip(dispatchers, ({1, 2}, {2}, {0, 1, 2}), strict=True):
        assert each.monitor.stats is not None
        each.monitor.stats = replace(each.monitor.stats, memory_ratio=0.8)
        assert {sharded.choose(ANONYMOUS) for _ in range(CHOICES)} == chosen
        assert [sharded.choose(each) for each in tenants] == first


async def test_a_shard_is_as_busy_as_the_queries_of_its_requests(
    dispatchers: list[Dispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short text with a long query is more work than a longer text without one."""
    monkeypatch.setattr("api.dispatch.shards.HOLD_S", -1.0)
    sharded = ShardedDispatcher(dispatchers[:2])
    sharded.check()
    requests = (
        InferenceRequest(("a",), 60_000, options=Options(query="q" * 8_000), op=SCORE),
        InferenceRequest(("a" * 800,), 60_000),
    )
    running = []
    for number, request in enumerate(requests, 1):
        running.append(asyncio.create_task(sharded.answer(request, f"{number:032}")))
        await wait_until(lambda: sum(each.in_flight for each in dispatchers) == len(running), "the request is sent")
    busy = [number for number, each in enumerate(dispatchers[:2]) if each.in_flight]
    try:
        assert busy == [0, 1]
        ranks = sharded.choose(ANONYMOUS)
        running.append(asyncio.create_task(sharded.answer(requests[1], f"{3:032}")))
        await wait_until(lambda: dispatchers[ranks].in_flight == 2, "the least busy shard has another request")
        assert sharded.choose(ANONYMOUS) == ranks
    finally:
        await cancel_and_wait(running)
