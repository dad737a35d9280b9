"""SIGTERM: finish what has begun, give back the rest, leave the group, exit with 0."""

from __future__ import annotations

import signal
import time

import pytest

from tests.integration.worker.worker_cluster import WorkerCluster, num_reclaimed
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = "simulated:base_ms=300,item_ms=0"


async def stopped(worker: Program, number: int = signal.SIGTERM) -> float:
    """Sends a signal, sees that the exit code is 0, and returns how long it took."""
    began = time.monotonic()
    worker.signal(number)
    assert await worker.wait_until_ended() == 0
    return time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_worker_leaves_at_once(cluster: WorkerCluster, number: int) -> None:
    """It does not sit its blocking read out."""
    worker = await cluster.start_worker()
    await wait_until(cluster.has_blocked_read, "it waits for an entry")
    assert await stopped(worker, number) < 1.5
    assert await cluster.consumers() == set()
    assert await cluster.live_workers() == set()
    assert worker.session() == []


async def test_what_has_begun_is_finished_and_the_rest_given_back(cluster: WorkerCluster) -> None:
    """The batch that runs is committed by the one who leaves; all else is run by another, at once."""
    first = await cluster.start_worker(SLOW, max_batch_size=2)
    asked = await cluster.submit_many([[f"text {i}"] for i in range(400)])
    await wait_until(cluster.has_entry_in_progress, "a batch runs")
    second = await cluster.start_worker(SLOW, reclaim_idle_ms=60_000)
    left_at = time.monotonic()
    assert await stopped(first) < 10
    owners = {row["consumer"].decode() for row in await cluster.pending_entries()}
    assert owners <= {"released", *await cluster.live_workers()}
    await cluster.check_replies(asked)
    assert time.monotonic() - left_at < 20
    assert await cluster.is_empty()
    released, silent = await num_reclaimed(second)
    assert 0 < released < 400
    assert silent == 0
    assert first.log_records("worker drained")[0]["left"] == 0
    await wait_until(cluster.has_only_live_consumers, "the group names nobody who has left")


async def test_the_grace_time_is_kept(cluster: WorkerCluster) -> None:
    """A batch that takes longer is left to another worker, and the exit code is still 0."""
    first = await cluster.start_worker("simulated:base_ms=10000,item_ms=0", drain_grace_s=0.3, heartbeat_ttl_s=1.5)
    asked = await cluster.submit_many([["long"]])
    await wait_until(cluster.has_entry_in_progress, "a batch runs")
    assert await stopped(first) < 6
    assert await cluster.raw.xlen(cluster.lane) == 1
    await cluster.start_worker(reclaim_idle_ms=300, heartbeat_ttl_s=1.5)
    await cluster.check_replies(asked)
    await wait_until(cluster.has_only_live_consumers, "the group names nobody who has left")


async def test_one_that_still_loads_leaves_as_well(cluster: WorkerCluster) -> None:
    """Nothing was claimed, so nothing has to be given back."""
    worker = await cluster.start_worker("minilm", ready=False)
    await wait_until(lambda: bool(worker.log_records("worker starts")), "it has started", timeout_s=20)
    assert await stopped(worker) < 10
    assert worker.session() == []
