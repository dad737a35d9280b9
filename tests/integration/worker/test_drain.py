"""SIGTERM: the worker finishes running batches, hands back the rest, leaves the group, and exits with code 0."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

import psutil
import pytest

from tests.integration.worker.worker_cluster import WorkerCluster, num_reclaimed
from tests.processes import Program
from tests.stall_detector import StallDetector
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = "simulated:base_ms=300,item_ms=0"


async def stop_time_s(worker: Program, number: int = signal.SIGTERM) -> float:
    """Sends a signal, checks that the exit code is 0, and returns the time until the end, in seconds."""
    start = time.monotonic()
    worker.signal(number)
    assert await worker.wait_until_ended() == 0
    return time.monotonic() - start


async def check_nothing_is_left(worker: Program) -> None:
    """Waits until no process of a worker that has ended is left: the kernel ends those that it has forked."""
    await wait_until(lambda: worker.session() == [], "no process is left")


@pytest.mark.exclusive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_worker_stops_at_once(cluster: WorkerCluster, number: int) -> None:
    """An idle worker does not wait for the end of its blocking read."""
    worker = await cluster.start_worker()
    await wait_until(cluster.has_blocked_read, "it waits for an entry")
    with StallDetector() as stalls:
        took_s = await stop_time_s(worker, number)
    assert took_s < 1.5 + stalls.longest_s
    assert await cluster.consumers() == set()
    assert await cluster.live_workers() == set()
    await check_nothing_is_left(worker)


@pytest.mark.parametrize("cpu_s", [0, 0.02, 0.05, 0.1, 0.15, 0.2])
async def test_ctrl_c_during_the_start_is_quiet(cluster: WorkerCluster, cpu_s: float) -> None:
    """A terminal sends SIGINT to all processes of the worker: at any moment of their start, they leave no traceback."""
    worker = await cluster.start_worker(ready=False)

    def has_run() -> bool:
        servers = worker.descendants("forkserver")
        with contextlib.suppress(psutil.Error):
            if any(sum(each.cpu_times()[:2]) >= cpu_s for each in servers):
                return True
        return bool(worker.log_records("engine ready"))  # a fast machine needs less for the whole start

    await wait_until(has_run, "the fork server has run for some time")
    os.killpg(worker.pid, signal.SIGINT)
    assert await worker.wait_until_ended() == 0
    assert {json.loads(line)["service"] for line in worker.output.splitlines()} <= {"worker", "engine"}
    await check_nothing_is_left(worker)


async def test_running_batches_are_finished_and_the_rest_handed_back(cluster: WorkerCluster) -> None:
    """The draining worker commits its running batch; another worker runs all other entries at once."""
    first = await cluster.start_worker(SLOW, max_batch_size=2)
    requests = await cluster.submit_many([[f"text {i}"] for i in range(400)])
    await wait_until(cluster.has_entry_in_progress, "a batch is running")
    second = await cluster.start_worker(SLOW, reclaim_idle_ms=60_000)
    stopped_at = time.monotonic()
    assert await stop_time_s(first) < 20
    owners = {row["consumer"].decode() for row in await cluster.pending_entries()}
    assert owners <= {"released", *await cluster.live_workers()}
    await cluster.check_replies(requests)
    assert time.monotonic() - stopped_at < 50
    assert await cluster.is_empty()
    released, silent = await num_reclaimed(second)
    assert 0 < released < 400
    assert silent == 0
    assert first.log_records("worker drained")[0]["left"] == 0
    await wait_until(cluster.has_only_live_consumers, "the group contains only live workers")


async def test_a_batch_beyond_the_grace_is_left_to_another_worker(cluster: WorkerCluster) -> None:
    """A batch that takes longer than drain_grace_s is left to another worker, and the exit code is 0."""
    first = await cluster.start_worker("simulated:base_ms=30000,item_ms=0", drain_grace_s=0.3, heartbeat_ttl_s=1.5)
    requests = await cluster.submit_many([["long"]])
    await wait_until(cluster.has_entry_in_progress, "a batch is running")
    assert await stop_time_s(first) < 20
    assert await cluster.raw.xlen(cluster.lane) == 1
    await cluster.start_worker(reclaim_idle_ms=300, heartbeat_ttl_s=1.5)
    await cluster.check_replies(requests)
    await wait_until(cluster.has_only_live_consumers, "the group contains only live workers")


async def test_a_loading_worker_stops(cluster: WorkerCluster) -> None:
    """A worker that is still loading its model has claimed nothing and stops within 20 s."""
    worker = await cluster.start_worker("minilm", ready=False)
    await wait_until(lambda: bool(worker.log_records("worker starts")), "it has started")
    assert await stop_time_s(worker) < 20
    await check_nothing_is_left(worker)
