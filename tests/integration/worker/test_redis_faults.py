"""Redis loses its data, or the group, under a running worker: it heals, and serves what comes then."""

from __future__ import annotations

import asyncio
import time

import pytest

from gpuworker.consumer.heartbeat import STUCK_S
from shared.keys import GROUP
from tests.integration.worker.worker_cluster import WorkerCluster, get_admin
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

HEALED_S = 5.0


async def heals(cluster: WorkerCluster, worker_count: int) -> None:
    """Sees that an entry that is submitted now is answered soon."""
    began = time.monotonic()
    await cluster.check_replies(await cluster.submit_many([[f"after {i}"] for i in range(5)]), HEALED_S)
    print(f"\nhealed after {time.monotonic() - began:.2f} s")  # noqa: T201 - a measure
    assert len(cluster.workers) == worker_count
    assert all(worker.running for worker in cluster.workers)


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=300,item_ms=0"])
async def test_all_data_is_lost(cluster: WorkerCluster, model: str) -> None:
    """FLUSHALL, idle and within a batch: what was there is its gateway's to submit again; the next is answered."""
    await cluster.start_worker(model)
    if model == "null":
        await wait_until(cluster.has_blocked_read, "it waits for an entry")
    else:
        await cluster.submit_many([["lost"]])
        await wait_until(cluster.has_entry_in_progress, "a batch runs")
    await cluster.raw.flushall()
    await heals(cluster, 1)
    await wait_until(cluster.is_empty, "nothing is left")


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=300,item_ms=0"])
async def test_the_group_is_destroyed(cluster: WorkerCluster, model: str) -> None:
    """The group is made again from the first entry on, so what was in work is answered as well."""
    await cluster.start_worker(model)
    asked = []
    if model == "null":
        await wait_until(cluster.has_blocked_read, "it waits for an entry")
    else:
        asked = await cluster.submit_many([["one"], ["two"]])
        await wait_until(cluster.has_entry_in_progress, "a batch runs")
    await cluster.raw.xgroup_destroy(cluster.lane, GROUP)
    await heals(cluster, 1)
    await cluster.check_replies(asked)
    await wait_until(cluster.is_empty, "nothing is left")


async def test_connections_are_killed_all_the_time(cluster: WorkerCluster) -> None:
    """What was claimed in a reply that never came is found again: every entry is answered, and nothing is left."""
    worker = await cluster.start_worker(renew_ms=50, reclaim_idle_ms=500)
    for i in range(10):
        asked = await cluster.submit_many([[f"{i} {j}"] for j in range(10)])
        await cluster.kill_worker_connections()
        await cluster.check_replies(asked)
    assert worker.running
    await wait_until(cluster.is_empty, "nothing is left")


@pytest.mark.long
async def test_redis_hangs_for_long(cluster: WorkerCluster) -> None:
    """A worker that waits for it, longer than a stuck one would be let be, is alive all the time, and serves after."""
    async with FaultProxy(cluster.url) as proxy:
        cluster.url = proxy.url
        worker = await cluster.start_worker(redis_timeout_s=60)
        proxy.silent = True
        ends = time.monotonic() + STUCK_S + 2
        while time.monotonic() < ends:
            assert (await get_admin(worker, "/livez")).status_code == 200
            await asyncio.sleep(0.5)
        proxy.silent = False
        proxy.cut()  # or it would wait for what was swallowed
        await heals(cluster, 1)
        await worker.stop()
