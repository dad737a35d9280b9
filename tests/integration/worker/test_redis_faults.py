"""Redis loses its data or its group, or breaks connections, under a running worker: the worker recovers."""

from __future__ import annotations

import asyncio
import time

import pytest

from gpuworker.consumer.worker_status import STUCK_S
from shared.keys import GROUP
from tests.integration.worker.worker_cluster import WorkerCluster, get_admin
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

RECOVERY_S = 15.0
TAKEN_AT_ONCE_S = 2.0
"""For requests that no worker keeps without an answer; another one takes them over after three seconds."""


async def check_recovery(cluster: WorkerCluster, num_workers: int) -> None:
    """Checks that new entries are answered within RECOVERY_S, and that the same `num_workers` processes still run."""
    start = time.monotonic()
    await cluster.check_replies(await cluster.submit_many([[f"after {i}"] for i in range(5)]), RECOVERY_S)
    print(f"\nrecovered after {time.monotonic() - start:.2f} s")  # noqa: T201 - a measurement
    assert len(cluster.workers) == num_workers
    assert all(worker.running for worker in cluster.workers)


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=300,item_ms=0"])
async def test_a_worker_recovers_from_the_loss_of_all_data(cluster: WorkerCluster, model: str) -> None:
    """After FLUSHALL, idle or in a batch, new entries are answered; gateways must submit the lost ones again."""
    await cluster.start_worker(model)
    if model == "null":
        await wait_until(cluster.has_blocked_read, "it waits for an entry")
    else:
        await cluster.submit_many([["lost"]])
        await wait_until(cluster.has_entry_in_progress, "a batch is running")
    await cluster.raw.flushall()
    await check_recovery(cluster, 1)
    await wait_until(cluster.is_empty, "the queue is empty")


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=300,item_ms=0"])
async def test_a_worker_recovers_from_the_loss_of_its_group(cluster: WorkerCluster, model: str) -> None:
    """The group is created again from the first entry, so entries that were in progress are answered as well."""
    await cluster.start_worker(model)
    requests = []
    if model == "null":
        await wait_until(cluster.has_blocked_read, "it waits for an entry")
    else:
        requests = await cluster.submit_many([["one"], ["two"]])
        await wait_until(cluster.has_entry_in_progress, "a batch is running")
    await cluster.raw.xgroup_destroy(cluster.lane, GROUP)
    await check_recovery(cluster, 1)
    await cluster.check_replies(requests)
    await wait_until(cluster.is_empty, "the queue is empty")


async def test_a_worker_survives_killed_connections(cluster: WorkerCluster) -> None:
    """Entries that were claimed in a reply that never arrived are found again, so every entry is answered."""
    worker = await cluster.start_worker(renew_ms=50, reclaim_idle_ms=500)
    for i in range(10):
        requests = await cluster.submit_many([[f"{i} {j}"] for j in range(10)])
        await cluster.kill_worker_connections()
        await cluster.check_replies(requests)
    assert worker.running
    await wait_until(cluster.is_empty, "the queue is empty")


@pytest.mark.leaves_anything
async def test_a_worker_survives_a_reply_that_cannot_be_stored(cluster: WorkerCluster) -> None:
    """A reply key of a wrong type: Redis fails on that answer alone, and all others arrive."""
    worker = await cluster.start_worker("simulated:base_ms=300,item_ms=0")
    requests = await cluster.submit_many([[f"text {number}"] for number in range(8)])
    bad, *others = requests
    await cluster.raw.set(cluster.keys.reply(bad.request_id), "a string")
    await cluster.check_replies(others)
    await cluster.check_replies(await cluster.submit_many([["after"]]))
    assert worker.running
    await wait_until(lambda: cluster.is_idle(worker), "the worker holds nothing")


@pytest.mark.long
async def test_a_worker_survives_a_hanging_redis(cluster: WorkerCluster) -> None:
    """A worker that waits for Redis for longer than STUCK_S stays alive all the time, and serves afterwards."""
    async with FaultProxy(cluster.url) as proxy:
        cluster.url = proxy.url
        worker = await cluster.start_worker(redis_timeout_s=60)
        proxy.silent = True
        until = time.monotonic() + STUCK_S + 2
        while time.monotonic() < until:
            assert (await get_admin(worker, "/livez")).status_code == 200
            await asyncio.sleep(0.5)
        proxy.silent = False
        proxy.cut()  # or it would wait for the replies that were discarded
        await check_recovery(cluster, 1)
        await worker.stop()


async def test_a_worker_that_cannot_commit_leaves_its_entries_to_others(cluster: WorkerCluster) -> None:
    """Its other connections are open, as where a name can no longer be resolved: it would claim and renew for ever."""
    async with FaultProxy(cluster.url) as proxy:
        proxy.should_cut = lambda name: name.endswith(":commit")
        direct, cluster.url = cluster.url, proxy.url
        first = await cluster.start_worker()
        held = await cluster.submit_many([[f"held {i}"] for i in range(4)])

        async def are_claimed() -> bool:
            return bool((await cluster.raw.xpending(cluster.lane, GROUP))["pending"] == len(held))

        await wait_until(are_claimed, "the worker has them")
        cluster.url = direct
        await cluster.start_worker()
        await cluster.check_replies(held, RECOVERY_S)
        await cluster.check_replies(await cluster.submit_many([[f"after {i}"] for i in range(20)]), TAKEN_AT_ONCE_S)
        proxy.should_cut = lambda _name: False
        assert await cluster.workers[1].stop() == 0
        await cluster.check_replies(await cluster.submit_many([["again"]]), RECOVERY_S)
        assert await first.stop() == 0
