"""What a request reserves before it is submitted, and what ends it before its deadline."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.dispatcher import Dispatcher
from api.memory_budget import HeldMemory, MemoryBudget
from api.settings import GatewaySettings
from api.tenants import ShareHolder, Tenant
from shared import consumer, scripts
from shared.errors import DeadlineExceededError, ModelFailingError
from shared.messages import DOES_NOT_LOAD, DRAINING, FAILING, LOADING, READY, Failure, FailureOrigin, Heartbeat
from shared.queue_connections import QueueConnections
from shared.scripts import Script
from shared.tenants import Quota
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

NUM_TEXTS = 40


@pytest.mark.parametrize(("state", "dim", "assumed_dim"), [(LOADING, 0, 1_024), (READY, 8, 8)])
async def test_vectors_of_unknown_size_count_as_large(
    redis_url: str, queue: QueueConnections, state: str, dim: int, assumed_dim: int
) -> None:
    """While no worker has been ready, vectors are reserved, and one request at a time has a waiter."""
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", dim, state, 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
    dispatcher = Dispatcher(GatewaySettings(redis_url=redis_url), queue.keys.queue)
    await dispatcher.start()
    budget, request = MemoryBudget(2**30), InferenceRequest(("a",) * NUM_TEXTS, 500)
    memory = [HeldMemory(budget, ShareHolder("a")) for _ in range(2)]
    try:
        calls = asyncio.gather(*(dispatcher.answer(request, "", each) for each in memory), return_exceptions=True)
        await asyncio.sleep(0)
        assert [each.uses_bell for each in dispatcher._requests.values()] == [False, state == LOADING]
        assert budget.num_bytes == 2 * NUM_TEXTS * 4 * assumed_dim
        assert [type(each) for each in await calls] == [DeadlineExceededError] * 2
    finally:
        await dispatcher.stop()


async def test_costs_end_where_the_model_stops_to_read(redis_url: str, queue: QueueConnections) -> None:
    """The maximum is what ready workers report; a text above it counts as that many tokens."""
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 8, READY, 0.0, 0, 0, 0, max_input_tokens=256)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
    dispatcher = Dispatcher(GatewaySettings(redis_url=redis_url), queue.keys.queue)
    await dispatcher.start()
    try:
        call = asyncio.create_task(dispatcher.answer(InferenceRequest(("x" * 100_000, "a"), 200)))
        await asyncio.sleep(0)
        [in_flight] = dispatcher._requests.values()
        assert [each.cost for each in in_flight.new_entries.values()] == [256 + 2]
        with pytest.raises(DeadlineExceededError):
            await call
    finally:
        await dispatcher.stop()


async def test_a_broken_host_ends_no_request_that_another_may_answer(redis_url: str, queue: QueueConnections) -> None:
    """Not while a worker that has it drains; once that worker's host is broken too, requests end at once."""
    connection = queue.connection("ghost")
    beat = Heartbeat("h1-1", "h1", 1, "cpu", "null", 8, READY, 0.0, 0, 0, 0)
    broken = replace(beat, worker="h2-failed", host="h2", dim=0, state=FAILING, failing=DOES_NOT_LOAD)
    await consumer.heartbeat(connection, queue.keys, beat, 60_000)
    dispatcher = Dispatcher(GatewaySettings(redis_url=redis_url), queue.keys.queue)
    await dispatcher.start()
    try:
        call = asyncio.create_task(dispatcher.answer(InferenceRequest(("a",), 60_000)))
        await consumer.heartbeat(connection, queue.keys, broken, 60_000)
        for away in (replace(beat, state=DRAINING), None):
            if away is None:
                await consumer.leave(connection, queue.keys, "h1-1")
            else:
                await consumer.heartbeat(connection, queue.keys, away, 60_000)
            await dispatcher.monitor.poll()
            dispatcher._on_fleet()
            await asyncio.sleep(0)
            assert not call.done()
        await consumer.heartbeat(connection, queue.keys, replace(broken, worker="h1-failed", host="h1"), 60_000)
        with pytest.raises(ModelFailingError):
            await call
    finally:
        await dispatcher.stop()


async def test_tokens_that_redis_does_not_take_back_delay_no_request(
    redis_url: str, queue: QueueConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part that gives tokens back pauses after an error; submits do not depend on it."""
    refusal = b"return redis.error_reply('NOPERM')"
    digest = hashlib.sha1(refusal, usedforsecurity=False).hexdigest()
    monkeypatch.setattr(scripts, "CHARGE", Script("charge", refusal, digest))
    monkeypatch.setattr("shared.process.tasks.RESTART_PAUSE_S", 60.0)
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 8, READY, 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)
    dispatcher = Dispatcher(GatewaySettings(redis_url=redis_url), queue.keys.queue)
    await dispatcher.start()
    request = InferenceRequest(("a",), 60_000, tenant=Tenant("a", Quota(daily_tokens=100)))
    try:
        for _ in range(3):
            call = asyncio.create_task(dispatcher.answer(request))
            await asyncio.sleep(0)
            [in_flight] = dispatcher._requests.values()
            await wait_until(lambda each=in_flight: each.submitted, "the entry is in the stream")  # type: ignore[misc]
            origin = FailureOrigin(unrun=True)
            in_flight.accept(Failure(in_flight.request_id, 0, 1, DeadlineExceededError.code, "too long", origin=origin))
            with pytest.raises(DeadlineExceededError, match="too long"):
                await call
    finally:
        await dispatcher.stop()
