"""Queues of several shards, each on its own Redis: while one of them is away, all requests are answered by others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.chaos.history import Call
from tests.chaos.paced_load import paced_load
from tests.chaos.scenario import FAST_WORKER, Figures, Scenario, all_correct
from tests.servers import stopped
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=5,item_ms=1"
TIMEOUT_S = 10.0
AWAY_S = 7.0
MAX_KILLED_S = 0.3
MAX_STOPPED_S = 1.5
"""Longest answers, also of the requests that wait at the Redis that dies."""


class ShardsScenario(Scenario):
    """Two gateways, and a worker of each shard."""

    def __init__(self, sharded: ShardedCluster, rows: list[Figures], *, thorough: bool) -> None:
        super().__init__(sharded.cluster, sharded.clients[0], thorough, rows)
        self.sharded = sharded
        self.all_shards = range(len(sharded.servers))

    async def start_shards(self) -> None:
        """Starts the processes. No worker takes an entry from another: lost ones are found otherwise."""
        for _ in range(2):
            self.gateways.append(await self.sharded.start_gateway())
        for shard in self.all_shards:
            settings = FAST_WORKER | {"reclaim_idle_ms": 60_000}
            self.workers.append(await self.sharded.start_worker(shard, MODEL, **settings))
        await wait_until_used(self.gateways, self.all_shards)

    @property
    def extra_s(self) -> float:
        """Time in s that the machine may add to a bound in the short form; the long one has none."""
        return 0.0 if self.thorough else self.margin_s

    @asynccontextmanager
    async def paced_load(self, few_calls_per_s: float = 100.0) -> AsyncIterator[list[Call]]:
        """Calls the gateways, 200 times a second in `make chaos`, for a second before the block and one after it."""
        urls = [each.url for each in self.gateways]
        async with paced_load(urls, 200.0 if self.thorough else few_calls_per_s, TIMEOUT_S) as calls:
            await asyncio.sleep(1.0)
            yield calls
            await asyncio.sleep(1.0)


@pytest_asyncio.fixture(params=[2, 3])
async def shards(
    request: pytest.FixtureRequest,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[ShardsScenario]:
    """Yields a cluster of several Redis, without processes yet."""
    async with sharded_cluster(request.param, queue_name, tmp_path_factory.mktemp("shards")) as sharded:
        scenario = ShardsScenario(sharded, rows, thorough=thorough)
        yield scenario
        assert not scenario.crash_logs()


async def test_a_shard_is_killed_and_comes_back_empty(shards: ShardsScenario) -> None:
    """F25: requests that wait there go to another shard at once; it is used again when a worker is ready there."""
    await shards.start_shards()
    *others, last = shards.all_shards
    async with shards.paced_load() as calls:
        await shards.sharded.kill(last)
        await wait_until_used(shards.gateways, others)
        await asyncio.sleep(AWAY_S)
        await shards.sharded.restart(last)
        await wait_until_used(shards.gateways, shards.all_shards)
    verdict = shards.judge(f"F25 one of {len(shards.all_shards)} shards: kill -9, back empty", calls)
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_KILLED_S + shards.extra_s


async def test_a_shard_hangs(shards: ShardsScenario) -> None:
    """F25: no connection breaks, and nothing is answered; its requests go to another shard after a second."""
    await shards.start_shards()
    first, *others = shards.all_shards
    async with shards.paced_load() as calls:
        with stopped(shards.sharded.servers[first]):
            await wait_until_used(shards.gateways, others)
            await asyncio.sleep(AWAY_S)
        await wait_until_used(shards.gateways, shards.all_shards)
    verdict = shards.judge(f"F25 one of {len(shards.all_shards)} shards: SIGSTOP", calls)
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_STOPPED_S + shards.extra_s
