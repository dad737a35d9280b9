"""Redis loses its data, or the group, under a running worker: it heals, and serves what comes then."""

from __future__ import annotations

import asyncio
import time

import pytest

from gpuworker.consumer.heartbeat import STUCK_S
from shared.keys import GROUP
from tests.integration.worker.worker_cluster import House, admin
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

HEALED_S = 5.0


async def heals(house: House, worker_count: int) -> None:
    """Sees that an entry that is submitted now is answered soon."""
    began = time.monotonic()
    await house.check(await house.ask_many([[f"after {i}"] for i in range(5)]), HEALED_S)
    print(f"\nhealed after {time.monotonic() - began:.2f} s")  # noqa: T201 - a measure
    assert len(house.workers) == worker_count
    assert all(worker.running for worker in house.workers)


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=300,item_ms=0"])
async def test_all_data_is_lost(house: House, model: str) -> None:
    """FLUSHALL, idle and within a batch: what was there is its gateway's to submit again; the next is answered."""
    await house.worker(model)
    if model == "null":
        await wait_until(house.blocked, "it waits for an entry")
    else:
        await house.ask_many([["lost"]])
        await wait_until(house.has_begun, "a batch runs")
    await house.raw.flushall()
    await heals(house, 1)
    await wait_until(house.empty, "nothing is left")


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=300,item_ms=0"])
async def test_the_group_is_destroyed(house: House, model: str) -> None:
    """The group is made again from the first entry on, so what was in work is answered as well."""
    await house.worker(model)
    asked = []
    if model == "null":
        await wait_until(house.blocked, "it waits for an entry")
    else:
        asked = await house.ask_many([["one"], ["two"]])
        await wait_until(house.has_begun, "a batch runs")
    await house.raw.xgroup_destroy(house.lane, GROUP)
    await heals(house, 1)
    await house.check(asked)
    await wait_until(house.empty, "nothing is left")


async def test_connections_are_killed_all_the_time(house: House) -> None:
    """What was claimed in a reply that never came is found again: every entry is answered, and nothing is left."""
    worker = await house.worker(renew_ms=50, reclaim_idle_ms=500)
    for i in range(10):
        asked = await house.ask_many([[f"{i} {j}"] for j in range(10)])
        await house.kill_connections_of_workers()
        await house.check(asked)
    assert worker.running
    await wait_until(house.empty, "nothing is left")


@pytest.mark.long
async def test_redis_hangs_for_long(house: House) -> None:
    """A worker that waits for it, longer than a stuck one would be let be, is alive all the time, and serves after."""
    async with FaultProxy(house.url) as proxy:
        house.url = proxy.url
        worker = await house.worker(redis_timeout_s=60)
        proxy.silent = True
        ends = time.monotonic() + STUCK_S + 2
        while time.monotonic() < ends:
            assert (await admin(worker, "/livez")).status_code == 200
            await asyncio.sleep(0.5)
        proxy.silent = False
        proxy.cut()  # or it would wait for what was swallowed
        await heals(house, 1)
        await worker.stop()
