"""Shards that are added to a queue and taken away under load, by restarts of its processes one after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.paced_load import paced_load
from tests.chaos.scenario import FAST_WORKER, PACED_TIMEOUT_S, Figures, Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.sharded_cluster import ShardedCluster, sharded_cluster, wait_until_used
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long]

MODEL = "simulated:base_ms=5,item_ms=1"
SIZES, BRIEF_SIZES = [1, 2, 3, 2, 1], [1, 2, 1]
"""Numbers of shards, one after the other: in `make chaos`, and in the short form."""

MAX_LATENCY_S = 1.5
"""Longest answer, also of the requests that wait on a shard whose last worker leaves."""

GATEWAY = {"drain_delay_s": 1.0}
WORKER = FAST_WORKER | {"reclaim_idle_ms": 60_000}
"""No worker takes an entry from another: one that leaves hands its entries back."""


class Rollout(Scenario):
    """Two gateways and two workers, which are replaced by those of another number of shards."""

    def __init__(self, sharded: ShardedCluster, rows: list[Figures], *, thorough: bool) -> None:
        super().__init__(sharded.cluster, sharded.clients[0], thorough, rows)
        self.sharded = sharded
        self.in_service: list[str] = []
        self.exit_codes: list[int] = []

    async def start_all(self, num_shards: int) -> None:
        """Starts the processes."""
        self.workers = [await self.sharded.start_worker(MODEL, num_shards, **WORKER) for _ in range(2)]
        for _ in range(2):
            self.gateways.append(await self._start_gateway(num_shards))
        self.in_service += [each.url for each in self.gateways]

    async def replace_workers(self, num_shards: int) -> None:
        """Starts a worker in place of each, and ends that."""
        for old in list(self.workers):
            self.workers.append(await self.sharded.start_worker(MODEL, num_shards, **WORKER))
            self.workers.remove(old)
            self.exit_codes.append(await old.stop(timeout_s=30))

    async def replace_gateways(self, num_shards: int) -> None:
        """Starts a gateway in place of each, which leaves the service and is ended."""
        for old in list(self.gateways):
            new = await self._start_gateway(num_shards)
            self.in_service[self.in_service.index(old.url)] = new.url
            self.gateways.append(new)
            self.gateways.remove(old)
            self.exit_codes.append(await old.program.stop(timeout_s=30))

    async def _start_gateway(self, num_shards: int) -> GatewayProcess:
        gateway = await self.sharded.start_gateway(num_shards, **GATEWAY)
        await wait_until(lambda: not gateway.missing(), "the gateway sees a worker", timeout_s=20)
        return gateway

    async def num_used(self) -> int:
        """Returns the number of shards that have had entries."""
        lane = self.cluster.keys.lanes[0]
        infos: list[Any] = [await each.xinfo_stream(lane) for each in self.sharded.clients if await each.exists(lane)]
        return sum(info["last-generated-id"] != b"0-0" for info in infos)


@pytest_asyncio.fixture
async def rollout(
    queue_name: str, thorough: bool, rows: list[Figures], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rollout]:
    """Yields as many Redis as there are shards at most, without processes yet."""
    num_shards = max(SIZES if thorough else BRIEF_SIZES)
    async with sharded_cluster(num_shards, queue_name, tmp_path_factory.mktemp("shards")) as sharded:
        rollout = Rollout(sharded, rows, thorough=thorough)
        yield rollout
        assert not rollout.crash_logs()


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in the wrong order"])
async def test_shards_are_added_and_taken_away(rollout: Rollout, in_order: bool) -> None:
    """F28: no call fails, whether new shards have workers before gateways know them and old ones until none does."""
    sizes = SIZES if rollout.thorough else BRIEF_SIZES
    await rollout.start_all(sizes[0])
    async with paced_load(rollout.in_service, 200.0 if rollout.thorough else 50.0, PACED_TIMEOUT_S) as calls:
        for before, after in itertools.pairwise(sizes):
            steps = [rollout.replace_workers, rollout.replace_gateways]
            for step in steps if (after > before) == in_order else reversed(steps):
                await step(after)
            if after > 1:
                await wait_until_used(rollout.gateways, range(after))
            await asyncio.sleep(1.0)
        assert await rollout.num_used() == max(sizes)
    name = f"F28 shards {', '.join(map(str, sizes))}, {'in order' if in_order else 'in the wrong order'}"
    verdict = rollout.judge(name, calls, restarts=len(rollout.exit_codes))
    assert set(rollout.exit_codes) == {0}
    assert all_correct(verdict)
    assert verdict.slowest_s <= MAX_LATENCY_S + rollout.margin_s
