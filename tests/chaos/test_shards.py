"""Queues of several shards, each on its own Redis: while one of them is away, all requests are answered by others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.scenario import FAST_WORKER, Figures, Scenario, all_correct
from tests.servers import stopped
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=5,item_ms=1"
AWAY_S = 7.0
OF_ALL, OF_ONE = "two workers of all", "a worker of each"
MAX_KILLED_S = 0.3
MAX_STOPPED_S = 1.5
"""Longest answers, also of the requests that wait at the Redis that dies."""


class ShardsScenario(Scenario):
    """Two gateways, and two workers of all shards, or one of each."""

    def __init__(self, sharded: ShardedCluster, rows: list[Figures], workers: str, *, thorough: bool) -> None:
        super().__init__(sharded.cluster, sharded.clients[0], thorough, rows)
        self.sharded = sharded
        self.workers_are = workers
        self.all_shards = range(len(sharded.servers))

    async def start_shards(self) -> None:
        """Starts the processes. No worker takes an entry from another: lost ones are found otherwise."""
        for _ in range(2):
            self.gateways.append(await self.sharded.start_gateway())
        settings = FAST_WORKER | {"reclaim_idle_ms": 60_000}
        if self.workers_are == OF_ALL:
            self.workers += [await self.sharded.start_worker(MODEL, **settings) for _ in range(2)]
        else:
            self.workers += [await self.sharded.start_worker_of(each, MODEL, **settings) for each in self.all_shards]
        await wait_until_used(self.gateways, self.all_shards)

    @property
    def name(self) -> str:
        """What the cluster is, for the table."""
        return f"{len(self.all_shards)} shards, {self.workers_are}"


@pytest_asyncio.fixture(params=[(2, OF_ALL), (3, OF_ALL), (2, OF_ONE)], ids=["2", "3", "2, a worker of each"])
async def shards(
    request: pytest.FixtureRequest,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[ShardsScenario]:
    """Yields a cluster of several Redis, without processes yet."""
    num_shards, workers = request.param
    async with sharded_cluster(num_shards, queue_name, tmp_path_factory.mktemp("shards")) as sharded:
        scenario = ShardsScenario(sharded, rows, workers, thorough=thorough)
        yield scenario
        assert not scenario.crash_logs()


async def test_a_shard_is_killed_and_comes_back_empty(shards: ShardsScenario) -> None:
    """F27: requests that wait there go to another shard at once; it is used again when a worker is ready there."""
    await shards.start_shards()
    *others, last = shards.all_shards
    async with shards.paced_load() as calls:
        await shards.sharded.kill(last)
        await wait_until_used(shards.gateways, others)
        await asyncio.sleep(AWAY_S)
        await shards.sharded.restart(last)
        await wait_until_used(shards.gateways, shards.all_shards)
    verdict = shards.judge(f"F27 one of {shards.name}: kill -9, back empty", calls)
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_KILLED_S + shards.extra_s


async def test_a_shard_hangs(shards: ShardsScenario) -> None:
    """F27: no connection breaks, and nothing is answered; its requests go to another shard after a second."""
    await shards.start_shards()
    first, *others = shards.all_shards
    async with shards.paced_load() as calls:
        with stopped(shards.sharded.servers[first]):
            await wait_until_used(shards.gateways, others)
            await asyncio.sleep(AWAY_S)
        await wait_until_used(shards.gateways, shards.all_shards)
    verdict = shards.judge(f"F27 one of {shards.name}: SIGSTOP", calls)
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_STOPPED_S + shards.extra_s
