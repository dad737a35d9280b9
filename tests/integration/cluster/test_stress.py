"""The reply path under stress: lost replies are recovered, and hardly any input runs twice."""

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

INTERVAL_S = 0.25
MAX_RUNS_PER_INPUT = 1.1
FAULT_RATIO = 0.01
Fault = Callable[[], Awaitable[object]]


def request_counts(usual: int, thorough: int) -> list[Any]:
    """Returns a number of requests for every run of the suite, and one for the thorough run (`pytest -m slow`)."""
    return [usual, pytest.param(thorough, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


@asynccontextmanager
async def inject_repeatedly(
    fault: Fault, pool: ClientPool, interval_s: float = INTERVAL_S
) -> AsyncIterator[list[float]]:
    """Injects a fault at regular intervals, first when a quarter of the requests have been answered.

    Yields the list of the times of the faults, which grows while the block runs.
    """
    times: list[float] = []
    stop = asyncio.Event()

    async def run() -> None:
        await wait_until(
            lambda: pool.outcomes.total() >= pool.num_requests / 4 or stop.is_set(),
            "a quarter of the requests is answered",
            timeout_s=60,
        )
        while not stop.is_set():
            await fault()
            times.append(time.monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), interval_s)

    task = asyncio.create_task(run())
    try:
        yield times
    finally:
        stop.set()
        await task


async def run_with_faults(
    cluster: GatewayCluster,
    pool: ClientPool,
    raw: redis.asyncio.Redis,
    fault: Fault,
    interval_s: float = INTERVAL_S,
    *,
    reruns_in_flight: bool = False,
) -> None:
    """Runs the clients while faults are injected. Raises AssertionError if a request fails or inputs run too often.

    With `reruns_in_flight`, each fault may also make all inputs in flight run again: a slow machine has more faults.
    """
    workers = await asyncio.gather(*(cluster.start_worker() for _ in range(2)))
    await wait_until(
        lambda: all(not each.monitor.missing() for each in pool.dispatchers), "the gateways see the workers"
    )
    start = time.monotonic()
    async with inject_repeatedly(fault, pool, interval_s) as times:
        await pool.run()
    took = time.monotonic() - start
    runs = sum(map(num_inputs_run, workers)) / pool.num_sent_inputs
    reruns = len(times) * pool.max_in_flight * max(pool.request_sizes) * reruns_in_flight
    sys.stdout.write(f"{pool.num_requests} in {took:.1f} s, {len(times)} faults, {runs:.4f} runs per input\n")
    assert pool.outcomes == {"ok": pool.num_requests}
    assert times, "no fault was injected"
    assert runs <= max(MAX_RUNS_PER_INPUT, 1 + reruns / pool.num_sent_inputs)
    await wait_until(lambda: _is_empty(raw, cluster.keys), "the queue is empty")
    assert [each.in_flight for each in pool.dispatchers] == [0] * len(pool.dispatchers)


async def _is_empty(raw: redis.asyncio.Redis, keys: Keys) -> bool:
    return int(await raw.xlen(keys.lanes[0])) == 0


def connection_killer(raw: redis.asyncio.Redis, gateways: Iterable[str]) -> Fault:
    """Returns a fault: Redis closes every connection of some gateways."""
    prefixes = tuple(f"gateway:{gateway}:" for gateway in gateways)

    async def kill() -> None:
        ids = [each["id"] for each in await raw.client_list() if each["name"].startswith(prefixes)]
        async with raw.pipeline(transaction=False) as pipe:
            for each in ids:
                pipe.execute_command("CLIENT", "KILL", "ID", each)
            await pipe.execute(raise_on_error=False)  # one may have been closed already

    return kill


@pytest.mark.parametrize("max_in_flight", [6, 100], ids=["own-key", "bell"])
@pytest.mark.parametrize("num_requests", request_counts(2_500, 25_000))
async def test_killed_connections_lose_no_request(
    cluster: GatewayCluster,
    start_dispatcher: StartDispatcher,
    raw: redis.asyncio.Redis,
    num_requests: int,
    max_in_flight: int,
) -> None:
    """If all connections of both gateways are closed every 250 ms, idle or in use, each request gets its vectors."""
    dispatchers = [await start_dispatcher(), await start_dispatcher()]
    pool = ClientPool(dispatchers, num_requests, max_in_flight, request_sizes=(1, 1, 1, 1, 40))
    await run_with_faults(cluster, pool, raw, connection_killer(raw, [each.gateway for each in dispatchers]))


@pytest.mark.parametrize("max_in_flight", [6, 100], ids=["own-key", "bell"])
@pytest.mark.parametrize("num_requests", request_counts(1_500, 12_500))
async def test_lost_replies_lose_no_request(
    cluster: GatewayCluster,
    start_dispatcher: StartDispatcher,
    proxy: FaultProxy,
    raw: redis.asyncio.Redis,
    num_requests: int,
    max_in_flight: int,
) -> None:
    """If one reply of Redis in a hundred is dropped, reset or leaves Redis' side open, each request gets its vectors.

    The replies are chosen at random, independently of each other: a repeated call may lose its reply again.
    """
    rng = random.Random(num_requests + max_in_flight)
    faults = (ReplyAction.DROP, ReplyAction.CUT, ReplyAction.ORPHAN)

    async def lose_replies() -> None:
        proxy.set_next_actions(
            *(rng.choice(faults) if rng.random() < FAULT_RATIO else ReplyAction.PASS for _ in range(2_000))
        )

    pool = ClientPool(
        [await start_dispatcher(proxy.url, redis_timeout_s=0.5)],
        num_requests,
        max_in_flight,
        request_sizes=(1, 1, 1, 40),
    )
    await run_with_faults(cluster, pool, raw, lose_replies)


@pytest.mark.parametrize("max_in_flight", [6, 40], ids=["own-key", "bell"])
@pytest.mark.parametrize("num_requests", request_counts(2_000, 12_500))
async def test_flushed_data_loses_no_request(
    cluster: GatewayCluster,
    start_dispatcher: StartDispatcher,
    raw: redis.asyncio.Redis,
    num_requests: int,
    max_in_flight: int,
) -> None:
    """If all data of Redis is deleted repeatedly, the gateways submit their requests again, and each gets its vectors.

    Requests in flight at a deletion may run twice, so these are few in comparison with the total.
    """
    dispatchers = [await start_dispatcher(), await start_dispatcher()]
    pool = ClientPool(dispatchers, num_requests, max_in_flight, request_sizes=(1, 1, 1, 2))
    interval_s = 0.4 if num_requests < 10_000 else 1.0
    await run_with_faults(cluster, pool, raw, raw.flushall, interval_s, reruns_in_flight=True)
