"""Queues of several shards, each on its own Redis: while one of them is away, all requests are answered by others."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
import redis.asyncio

from tests.chaos.history import Call
from tests.chaos.paced_load import paced_load
from tests.chaos.scenario import FAST_WORKER, Figures, Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayCluster, log_lines
from tests.processes import Processes, Program
from tests.servers import Server, stopped
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=5,item_ms=1"
TIMEOUT_S = 10.0
AWAY_S = 7.0
MAX_KILLED_S = 0.3
MAX_STOPPED_S = 1.5
"""Longest answers, also of the requests that wait at the Redis that dies."""


@dataclass
class Shards:
    """A cluster whose queue has a shard on each of several Redis."""

    scenario: Scenario
    servers: Sequence[Server]

    async def start(self) -> None:
        """Starts two gateways, and a worker of each shard."""
        cluster = self.scenario.cluster
        urls = ",".join(each.url for each in self.servers)
        for _ in range(2):
            self.scenario.gateways.append(await cluster.start_gateway(redis_url=None, redis_shards=urls))
        for server in self.servers:
            self.scenario.workers.append(
                await cluster.start_worker(MODEL, **FAST_WORKER | {"redis_url": server.url, "reclaim_idle_ms": 60_000})
            )
        await self.wait_until_used(range(len(self.servers)))

    async def wait_until_used(self, shards: Sequence[int]) -> None:
        """Waits until all gateways use these shards alone."""

        def used() -> bool:
            return all(shards_in_use(each.program) == list(shards) for each in self.scenario.gateways)

        await wait_until(used, f"the gateways use {list(shards)}", timeout_s=20, poll_s=0.05)

    @asynccontextmanager
    async def load(self, few_calls_per_s: float = 100.0) -> AsyncIterator[list[Call]]:
        """Calls the gateways, 200 times a second in `make chaos`, for a second before the block and one after it."""
        urls = [each.url for each in self.scenario.gateways]
        async with paced_load(urls, 200.0 if self.scenario.thorough else few_calls_per_s, TIMEOUT_S) as calls:
            await asyncio.sleep(1.0)
            yield calls
            await asyncio.sleep(1.0)


def shards_in_use(gateway: Program) -> list[int]:
    """Returns the numbers of the shards that take requests, as a gateway has logged them."""
    logged = [line["shards"] for line in log_lines(gateway) if line["msg"] == "shards that take requests"]
    return list(logged[-1]) if logged else []


@pytest_asyncio.fixture(params=[2, 3])
async def shards(
    request: pytest.FixtureRequest,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Shards]:
    """Yields a cluster of several Redis, without processes yet."""
    async with AsyncExitStack() as stack:
        servers = [Server() for _ in range(request.param)]
        for server in servers:
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        raw = await stack.enter_async_context(redis.asyncio.Redis.from_url(servers[0].url, protocol=2))
        processes = await stack.enter_async_context(Processes(tmp_path_factory.mktemp("shards")))
        scenario = Scenario(GatewayCluster(processes, servers[0].url, queue_name), raw, thorough, rows)
        yield Shards(scenario, servers)
        assert not scenario.crash_logs()


async def test_a_shard_is_killed_and_comes_back_empty(shards: Shards) -> None:
    """F25: requests that wait there go to another shard at once; it is used again when a worker is ready there."""
    await shards.start()
    everywhere = range(len(shards.servers))
    async with shards.load() as calls:
        os.kill(shards.servers[-1].pid, signal.SIGKILL)
        await shards.wait_until_used(everywhere[:-1])
        await asyncio.sleep(AWAY_S)
        await asyncio.to_thread(shards.servers[-1].start)
        await shards.wait_until_used(everywhere)
    fault = f"F25 one of {len(everywhere)} shards: kill -9, back empty"
    verdict = shards.scenario.judge(fault, calls)
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_KILLED_S + (0 if shards.scenario.thorough else shards.scenario.margin_s)


async def test_a_shard_hangs(shards: Shards) -> None:
    """F25: no connection breaks, and nothing is answered; its requests go to another shard after a second."""
    await shards.start()
    everywhere = range(len(shards.servers))
    async with shards.load() as calls:
        with stopped(shards.servers[0]):
            await shards.wait_until_used(everywhere[1:])
            await asyncio.sleep(AWAY_S)
        await shards.wait_until_used(everywhere)
    verdict = shards.scenario.judge(f"F25 one of {len(everywhere)} shards: SIGSTOP", calls)
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_STOPPED_S + (0 if shards.scenario.thorough else shards.scenario.margin_s)
