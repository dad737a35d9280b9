"""The reply path under stress: what is lost on the way is found again, and hardly anything runs twice."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import redis.asyncio

from shared.keys import Keys
from tests.integration.cluster.client_pool import ClientPool, num_inputs_run
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.proxy import FaultProxy, ReplyAction
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

EVERY_S = 0.25
MAX_RUNS = 1.1
LOST = 0.01
Harm = Callable[[], Awaitable[object]]


def sizes(few: int, many: int) -> list[Any]:
    """A number of requests for every run of the suite, and one for the thorough one (`pytest -m slow`)."""
    return [few, pytest.param(many, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


@asynccontextmanager
async def repeatedly(harm: Harm, pool: ClientPool, every_s: float = EVERY_S) -> AsyncIterator[list[float]]:
    """Does harm at regular times, and first when a quarter of the pool has its answer, however fast that is.

    Yields the list of the times at which it was done.
    """
    done: list[float] = []
    enough = asyncio.Event()

    async def run() -> None:
        await wait_until(
            lambda: pool.outcomes.total() >= pool.requests / 4 or enough.is_set(),
            "a quarter is answered",
            timeout_s=60,
        )
        while not enough.is_set():
            await harm()
            done.append(time.monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), every_s)

    task = asyncio.create_task(run())
    try:
        yield done
    finally:
        enough.set()
        await task


async def survive(
    cluster: GatewayCluster, pool: ClientPool, raw: redis.asyncio.Redis, harm: Harm, every_s: float = EVERY_S
) -> None:
    """Sends the pool's requests while harm is done, and checks that none of them has noticed."""
    workers = await asyncio.gather(*(cluster.start_worker() for _ in range(2)))
    await wait_until(lambda: all(not each.monitor.missing() for each in pool.dispatchers), "the workers are seen")
    began = time.monotonic()
    async with repeatedly(harm, pool, every_s) as done:
        await pool.run()
    took = time.monotonic() - began
    runs = sum(map(num_inputs_run, workers)) / pool.sent_inputs
    sys.stdout.write(f"{pool.requests} in {took:.1f} s, harm done {len(done)} times, {runs:.4f} runs per input\n")
    assert pool.outcomes == {"ok": pool.requests}
    assert done, "harm was done"
    assert runs <= MAX_RUNS
    await wait_until(lambda: _empty(raw, cluster.keys), "nothing is left in the queue")
    assert [each.in_flight for each in pool.dispatchers] == [0] * len(pool.dispatchers)


async def _empty(raw: redis.asyncio.Redis, keys: Keys) -> bool:
    return int(await raw.xlen(keys.lanes[0])) == 0


def killer(raw: redis.asyncio.Redis, gateways: Iterable[str]) -> Harm:
    """Returns what closes every connection of some gateways, as Redis itself would."""
    beginnings = tuple(f"gateway:{gateway}:" for gateway in gateways)

    async def kill() -> None:
        ids = [each["id"] for each in await raw.client_list() if each["name"].startswith(beginnings)]
        async with raw.pipeline(transaction=False) as pipe:
            for each in ids:
                pipe.execute_command("CLIENT", "KILL", "ID", each)
            await pipe.execute(raise_on_error=False)  # one may have gone meanwhile

    return kill


@pytest.mark.parametrize("at_once", [6, 100], ids=["own-key", "bell"])
@pytest.mark.parametrize("requests", sizes(2_500, 25_000))
async def test_killed_connections_lose_nothing(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, raw: redis.asyncio.Redis, requests: int, at_once: int
) -> None:
    """All connections of both gateways are closed every 250 ms, in whatever they are."""
    dispatchers = [await start_dispatcher(), await start_dispatcher()]
    pool = ClientPool(dispatchers, requests, at_once, inputs=(1, 1, 1, 1, 40))
    await survive(cluster, pool, raw, killer(raw, [each.gateway for each in dispatchers]))


@pytest.mark.parametrize("at_once", [6, 100], ids=["own-key", "bell"])
@pytest.mark.parametrize("requests", sizes(1_500, 12_500))
async def test_dropped_replies_lose_nothing(
    cluster: GatewayCluster,
    start_dispatcher: StartDispatcher,
    proxy: FaultProxy,
    raw: redis.asyncio.Redis,
    requests: int,
    at_once: int,
) -> None:
    """A network that, once in a hundred replies, swallows it, resets the connection, or leaves Redis with a dead one.

    Which replies it is depends on nothing: what is repeated may be lost again, and is not always.
    """
    dice = random.Random(requests + at_once)
    fates = (ReplyAction.DROP, ReplyAction.CUT, ReplyAction.ORPHAN)

    async def lose() -> None:
        proxy.set_next_actions(
            *(dice.choice(fates) if dice.random() < LOST else ReplyAction.PASS for _ in range(2_000))
        )

    pool = ClientPool(
        [await start_dispatcher(proxy.url, redis_timeout_s=0.3)], requests, at_once, inputs=(1, 1, 1, 40)
    )
    await survive(cluster, pool, raw, lose)


@pytest.mark.parametrize("at_once", [6, 40], ids=["own-key", "bell"])
@pytest.mark.parametrize("requests", sizes(2_000, 12_500))
async def test_flushed_data_loses_nothing(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, raw: redis.asyncio.Redis, requests: int, at_once: int
) -> None:
    """All data of Redis vanishes in the middle; the gateways hold what they were asked, and submit it again.

    What was in flight then may run twice, so that is kept small against the whole.
    """
    dispatchers = [await start_dispatcher(), await start_dispatcher()]
    pool = ClientPool(dispatchers, requests, at_once, inputs=(1, 1, 1, 2))
    await survive(cluster, pool, raw, raw.flushall, every_s=0.4 if requests < 10_000 else 1.0)
