"""Requests that are cancelled at any moment never cost another request its own answer."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
import redis.asyncio

from api.dialects.request import InferenceRequest
from api.dispatch.dispatcher import Dispatcher
from shared.connection import QueueConnections
from shared.errors import RedbatchError
from shared.keys import Keys
from tests.integration.cluster.client_pool import ClientPool, is_result_for
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


async def names(raw: redis.asyncio.Redis, gateway: str) -> list[str]:
    """Returns the names of a gateway's connections."""
    return sorted(each["name"] for each in await raw.client_list() if each["name"].startswith(f"gateway:{gateway}:"))


async def test_cancelled_requests_leave_no_foreign_answers(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, proxy: FaultProxy, raw: redis.asyncio.Redis
) -> None:
    """800 requests are cancelled after random times on a slow network; no other ever gets a vector that is not its own.

    A reply that a cancelled read has left on its connection would go to the next who reads there.
    """
    dispatcher = await start_dispatcher(proxy.url)
    await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    await ClientPool([dispatcher], 50, 50).run()
    before = await names(raw, dispatcher.gateway)
    dice = random.Random(7)
    proxy.delay_s = lambda: dice.random() * 0.008
    wrong: list[list[str]] = []

    async def client(number: int) -> None:
        for turn in range(20):
            texts = [f"{number} {turn} {i}" for i in range(dice.choice((1, 1, 40)))]
            asked = asyncio.create_task(dispatcher.answer(InferenceRequest(tuple(texts), 20_000)))
            if turn % 2:
                asyncio.get_running_loop().call_later(dice.random() * 0.04, asked.cancel)
            with suppress(asyncio.CancelledError):
                if not is_result_for(await asked, texts):
                    wrong.append(texts)

    await asyncio.gather(*(client(number) for number in range(40)))
    proxy.delay_s = lambda: 0.0
    after = ClientPool([dispatcher], 200, 20)
    await after.run()
    assert (wrong, after.outcomes) == ([], {"ok": 200})
    assert dispatcher.in_flight == 0
    assert await names(raw, dispatcher.gateway) == before


async def test_every_waiter_is_free_after_cancels_in_the_same_tick(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, proxy: FaultProxy
) -> None:
    """A request may be cancelled, or late, in the very moment in which its submit is answered."""
    dispatcher = await start_dispatcher(proxy.url)
    await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    free = len(dispatcher._replies._free_waiters)
    dice = random.Random(3)
    for _ in range(300):
        asked = [asyncio.create_task(dispatcher.answer(InferenceRequest(("a",), dice.randint(1, 4)))) for _ in range(3)]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(dice.random() * 0.003, asked[0].cancel)
        await asyncio.gather(*asked, return_exceptions=True)
    await wait_until(lambda: len(dispatcher._replies._free_waiters) == free, "all waiters are free")


async def test_a_cancel_is_not_kept_waiting_by_new_requests(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, raw: redis.asyncio.Redis
) -> None:
    """While requests come without end, the entry of one that is cancelled still goes at once."""
    dispatcher = await start_dispatcher(worker_grace_s=60)
    worker = await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    await worker.stop()
    lane = cluster.keys.lanes[0]
    first = asyncio.create_task(dispatcher.answer(InferenceRequest(("first",), 30_000)))

    async def has_first() -> bool:
        rows: Any = await raw.xrange(lane, count=5)
        return any(b"first" in fields[b"body"] for _, fields in rows)

    await wait_until(has_first, "the request is in the queue")
    load = asyncio.create_task(_without_end(dispatcher))
    await wait_until(lambda: dispatcher.in_flight > 200, "requests come")
    first.cancel()

    async def gone() -> bool:
        return not await has_first()

    await wait_until(gone, "it is taken back", timeout_s=5)
    load.cancel()
    with suppress(asyncio.CancelledError):
        await load

    async def empty() -> bool:
        return int(await raw.xlen(lane)) == 0

    await wait_until(empty, "all is taken back")


async def _without_end(dispatcher: Dispatcher) -> None:
    """Begins a request in each turn of the event loop; all end when it does."""

    async def one() -> None:
        with suppress(RedbatchError):
            await dispatcher.answer(InferenceRequest(("more",), 3_000))

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(one())
            await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancel_is_never_taken_for_an_answer(queue: QueueConnections, keys: Keys, turns: int) -> None:
    """Whatever a call is at when it is cancelled, even the very end of its sending: it ends, and at once.

    Else a gateway that stops would wait for a task that goes on for ever.
    """
    connection = queue.connection("cancelled")
    await connection.call("ECHO", "x")
    popping = asyncio.create_task(connection.pop(keys.reply("r"), 2))
    for _ in range(turns):
        await asyncio.sleep(0)
    popping.cancel()
    done, _ = await asyncio.wait([popping], timeout=1)
    assert done
    assert popping.cancelled()
