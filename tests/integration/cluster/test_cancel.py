"""A cancelled request never takes the answer of another request, whenever it is cancelled."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
import redis.asyncio

from api.dialects.request import InferenceRequest
from api.dispatch.dispatcher import Dispatcher
from shared.errors import RedbatchError
from shared.keys import Keys
from shared.queue_connections import QueueConnections
from tests.integration.cluster.client_pool import ClientPool, is_result_for
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


async def connection_names(raw: redis.asyncio.Redis, gateway: str) -> list[str]:
    """Returns the sorted names of a gateway's connections."""
    return sorted(each["name"] for each in await raw.client_list() if each["name"].startswith(f"gateway:{gateway}:"))


async def test_cancelled_requests_cause_no_foreign_answers(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, proxy: FaultProxy, raw: redis.asyncio.Redis
) -> None:
    """If up to 400 of 800 requests are cancelled at random times on a slow network, no other gets a foreign vector.

    A reply that a cancelled read left on its connection would go to the next reader of that connection.
    """
    dispatcher = await start_dispatcher(proxy.url)
    await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    await ClientPool([dispatcher], 50, 50).run()
    before = await connection_names(raw, dispatcher.gateway)
    rng = random.Random(7)
    proxy.delay_s = lambda: rng.random() * 0.008
    foreign: list[list[str]] = []

    async def client(number: int) -> None:
        for turn in range(20):
            texts = [f"{number} {turn} {i}" for i in range(rng.choice((1, 1, 40)))]
            request = asyncio.create_task(dispatcher.answer(InferenceRequest(tuple(texts), 20_000)))
            if turn % 2:
                asyncio.get_running_loop().call_later(rng.random() * 0.04, request.cancel)
            with suppress(asyncio.CancelledError):
                if not is_result_for(await request, texts):
                    foreign.append(texts)

    await asyncio.gather(*(client(number) for number in range(40)))
    proxy.delay_s = lambda: 0.0
    after = ClientPool([dispatcher], 200, 20)
    await after.run()
    assert (foreign, after.outcomes) == ([], {"ok": 200})
    assert dispatcher.in_flight == 0

    async def has_the_same_connections() -> bool:
        return await connection_names(raw, dispatcher.gateway) == before

    await wait_until(has_the_same_connections, f"its connections are {before} again")


async def test_waiters_are_free_after_simultaneous_cancels(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, proxy: FaultProxy
) -> None:
    """If requests are cancelled or expire in the tick in which their submit is answered, all waiters become free."""
    dispatcher = await start_dispatcher(proxy.url)
    await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    free = len(dispatcher._replies._free_waiters)
    rng = random.Random(3)
    for _ in range(300):
        requests = [
            asyncio.create_task(dispatcher.answer(InferenceRequest(("a",), rng.randint(1, 4)))) for _ in range(3)
        ]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(rng.random() * 0.003, requests[0].cancel)
        await asyncio.gather(*requests, return_exceptions=True)
    await wait_until(lambda: len(dispatcher._replies._free_waiters) == free, "all waiters are free")


async def test_new_requests_do_not_delay_a_cancel(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, raw: redis.asyncio.Redis
) -> None:
    """While requests arrive continuously, the entry of a cancelled request is removed from the lane within 15 s."""
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

    async def is_removed() -> bool:
        return not await has_first()

    load = asyncio.create_task(_send_continuously(dispatcher))
    try:
        await wait_until(lambda: dispatcher.in_flight > 200, "requests are in flight")
        first.cancel()
        await wait_until(is_removed, "the entry is removed", timeout_s=15)
    finally:
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load

    async def is_empty() -> bool:
        return int(await raw.xlen(lane)) == 0

    await wait_until(is_empty, "all entries are removed")


async def _send_continuously(dispatcher: Dispatcher) -> None:
    """Starts a request in each tick of the event loop; all end with this coroutine."""

    async def one() -> None:
        with suppress(RedbatchError):
            await dispatcher.answer(InferenceRequest(("more",), 3_000))

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(one())
            await asyncio.sleep(0)


@pytest.mark.parametrize("ticks", range(12))
async def test_a_cancelled_call_ends_at_once(queue: QueueConnections, keys: Keys, ticks: int) -> None:
    """A blocking call that is cancelled in any of its stages, even at the end of its sending, is cancelled within 1 s.

    Otherwise a stopping gateway would wait for a task that never ends.
    """
    connection = queue.connection("cancelled")
    await connection.call("ECHO", "x")
    pop = asyncio.create_task(connection.pop(keys.reply("r"), 2))
    for _ in range(ticks):
        await asyncio.sleep(0)
    pop.cancel()
    done, _ = await asyncio.wait([pop], timeout=1)
    assert done
    assert pop.cancelled()
