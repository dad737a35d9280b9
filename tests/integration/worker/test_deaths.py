"""Recovery of entries when the worker, its engine or its fork server is killed (SIGKILL) or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from gpuworker.consumer.claimer import MAX_CLAIM
from redbatch.commands import app
from shared import dead_letters
from shared.keys import GROUP
from shared.messages import Failure
from tests.integration.worker.worker_cluster import PendingRequest, WorkerCluster, metric, num_reclaimed
from tests.processes import Program
from tests.stall_detector import StallDetector
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = "simulated:base_ms=300,item_ms=0"
SHORT_TIMES: dict[str, Any] = {"heartbeat_s": 0.2, "heartbeat_ttl_s": 1.0, "reclaim_idle_ms": 500, "renew_ms": 100}
MAX_HEARTBEAT_GAP_MS = 3_500


def fork_server(worker: Program) -> psutil.Process:
    """Returns the process that forks a worker's engines."""
    (server,) = worker.descendants("redbatch forkserver")
    return server


def engines(worker: Program) -> list[psutil.Process]:
    """Returns the living processes that the fork server has forked, ready or not."""
    with contextlib.suppress(psutil.Error, ValueError):
        return [each for each in fork_server(worker).children() if each.status() != psutil.STATUS_ZOMBIE]
    return []


@contextlib.asynccontextmanager
async def heartbeats_continue(cluster: WorkerCluster) -> AsyncIterator[None]:
    """Checks during the block that the worker's heartbeat never expires, with gaps of at most MAX_HEARTBEAT_GAP_MS.

    While the machine stalls, and this process with it, no worker can send one: gaps may be longer by that time.
    """
    (name,) = await cluster.live_workers()
    times: list[float] = []
    missed: list[float] = []

    stop = asyncio.Event()  # not a cancellation: redis-py may swallow one on Python 3.11

    async def poll() -> None:
        while not stop.is_set():
            if not await cluster.raw.exists(cluster.keys.worker(name)):
                missed.append(time.monotonic())
            times.append(float(await cluster.raw.zscore(cluster.keys.workers, name) or 0.0))
            await asyncio.sleep(0.02)

    with StallDetector() as stalls:
        task = asyncio.create_task(poll())
        try:
            yield
        finally:
            stop.set()
            await task
    distinct = sorted(set(times))
    max_gap_ms = MAX_HEARTBEAT_GAP_MS + 1_000 * stalls.longest_s
    assert missed == []
    assert max((later - earlier for earlier, later in pairwise(distinct)), default=0) <= max_gap_ms


async def replace_engine(worker: Program, killed: list[psutil.Process], ready_before: int) -> None:
    """Kills processes and waits for a new ready engine; prints the times that this took."""
    old = {each.pid for each in engines(worker)}
    start = time.monotonic()
    for each in killed:
        each.kill()
    await wait_until(lambda: bool({each.pid for each in engines(worker)} - old), "an engine is started")
    started = time.monotonic() - start
    await wait_until(lambda: len(worker.log_records("engine ready")) > ready_before, "an engine is ready")
    ready = time.monotonic() - start
    print(f"\nnew engine: started {started:.2f} s, ready {ready:.2f} s after the kill")  # noqa: T201 - a measurement
    assert worker.running


async def test_another_worker_runs_the_entries_of_a_dead_one(cluster: WorkerCluster) -> None:
    """All entries of a worker that is killed within a batch are run by another; no process or name of it remains.

    An attempt is counted for entries that were running, and for no others.
    """
    first = await cluster.start_worker(SLOW, max_batch_size=2, **SHORT_TIMES)
    requests = await cluster.submit_many([[f"text {i}"] for i in range(12)])
    await wait_until(cluster.has_entry_in_progress, "a batch is running")
    first.signal(signal.SIGSTOP)
    running = {name.split("/")[1] for name in await cluster.entries_in_progress()}
    rows = await cluster.pending_entries()
    held, mine = {row["message_id"].decode() for row in rows}, {row["consumer"] for row in rows}
    assert (len(held) > len(running), len(mine)) == (True, 1)
    first.kill()
    # Slower than the first: they must not be done before they are seen.
    second = await cluster.start_worker("simulated:base_ms=1000,item_ms=0", ready=False, **SHORT_TIMES)

    async def are_reclaimed() -> bool:
        rows = await cluster.pending_entries()
        return bool(rows) and {row["consumer"] for row in rows}.isdisjoint(mine)

    await wait_until(are_reclaimed, "the other worker has reclaimed them", timeout_s=60, poll_s=0.002)
    attempts = {row["message_id"].decode(): row["times_delivered"] - 1 for row in await cluster.pending_entries()}
    assert running
    assert attempts == {name: int(name in running) for name in held & attempts.keys()}
    await cluster.check_replies(requests)
    assert await cluster.is_empty()
    await wait_until(lambda: first.session() == [], "engine and fork server of the dead worker have ended")
    await wait_until(cluster.has_only_live_consumers, "the dead worker's name has left the group")
    released, silent = await num_reclaimed(second)
    assert (released, silent > 0) == (0, True)
    assert second.running


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=5,item_ms=3"])
async def test_a_dead_engine_is_replaced(cluster: WorkerCluster, model: str) -> None:
    """While no engine is ready, heartbeats continue, and the next engine answers new entries."""
    worker = await cluster.start_worker(model)
    async with heartbeats_continue(cluster):
        for round_ in range(2):
            await cluster.check_replies(await cluster.submit_many([["before"]]))
            await replace_engine(worker, engines(worker), round_ + 1)
            await cluster.check_replies(await cluster.submit_many([["after"], ["more"]]))
    assert await metric(worker, "redbatch_engine_restarts_total") == 2


async def test_a_hung_engine_is_replaced(cluster: WorkerCluster) -> None:
    """An engine that hangs in a batch is killed after engine_hang_s, another runs the batch; heartbeats continue."""
    worker = await cluster.start_worker("simulated:base_ms=50,item_ms=0", engine_hang_s=4, max_batch_size=1)
    await cluster.check_replies(await cluster.submit_many([["before"]]))
    requests = await cluster.submit_many([[f"text {i}"] for i in range(50)])
    await wait_until(cluster.has_entry_in_progress, "a batch is running")
    (engine,) = engines(worker)
    async with heartbeats_continue(cluster):
        engine.send_signal(signal.SIGSTOP)
        await cluster.check_replies(requests)
    assert await metric(worker, "redbatch_engine_hangs_total") == 1
    assert [each["after_s"] >= 4 for each in worker.log_records("engine hangs: killed")] == [True]
    assert not engine.is_running()


async def test_a_slow_batch_is_not_a_hang(cluster: WorkerCluster) -> None:
    """The first batch may take as long as a warm-up, and later ones ten times as long as earlier batches."""
    worker = await cluster.start_worker("simulated:base_ms=1200,item_ms=0", engine_hang_s=0.3)
    for text in ("one", "two"):
        await cluster.check_replies(await cluster.submit_many([[text]]))
    assert await metric(worker, "redbatch_engine_hangs_total") == 0


async def test_a_pause_of_the_whole_worker_is_not_a_hang(cluster: WorkerCluster) -> None:
    """If the host stalls for longer than the hang timeout, both processes stall, and the engine is not killed."""
    worker = await cluster.start_worker("simulated:base_ms=50,item_ms=0", max_batch_size=1, engine_hang_s=2)
    await cluster.check_replies(await cluster.submit_many([["before"]]))
    requests = await cluster.submit_many([[f"text {i}"] for i in range(20)])
    await wait_until(cluster.has_entry_in_progress, "a batch is running")
    (engine,) = engines(worker)
    worker.signal(signal.SIGSTOP)
    engine.send_signal(signal.SIGSTOP)
    await asyncio.sleep(3.5)  # the pause
    worker.signal(signal.SIGCONT)
    engine.send_signal(signal.SIGCONT)
    await cluster.check_replies(requests)
    assert await metric(worker, "redbatch_engine_hangs_total") == 0


async def test_the_batch_of_a_dead_engine_runs_again(cluster: WorkerCluster) -> None:
    """The same worker answers all entries of the batch, running each alone."""
    worker = await cluster.start_worker(SLOW)
    requests = await cluster.submit_many([[f"text {i}", "and"] for i in range(3)])
    await wait_until(cluster.has_entry_in_progress, "the batch is running")
    async with heartbeats_continue(cluster):
        await replace_engine(worker, engines(worker), 1)
        await cluster.check_replies(requests)
    assert await cluster.is_empty()
    assert await metric(worker, "redbatch_reclaimed_total") == 0


async def test_a_dead_fork_server_is_replaced(cluster: WorkerCluster) -> None:
    """The engine dies with its fork server; the worker restarts both and answers the entries that it held."""
    worker = await cluster.start_worker(SLOW)
    requests = await cluster.submit_many([["one"], ["two"]])
    await wait_until(cluster.has_entry_in_progress, "the batch is running")
    old = fork_server(worker)
    async with heartbeats_continue(cluster):
        await replace_engine(worker, [old], 1)
        await cluster.check_replies(requests)
    assert fork_server(worker).pid != old.pid


async def kill_engine_when_running(cluster: WorkerCluster, worker: Program, name: str, times: int) -> None:
    """Simulates an input that kills its engine: kills the engine each time that the entry is running."""

    async def is_running() -> bool:
        return name in await cluster.entries_in_progress()

    for _ in range(times):
        await wait_until(is_running, "the entry is running", timeout_s=20)
        for each in engines(worker):
            each.kill()
        await cluster.raw.delete(*[key async for key in cluster.raw.scan_iter(match=cluster.keys.begun("*"))])


@pytest.mark.leaves_dead_letters
async def test_an_input_that_kills_the_engine_fails_only_itself(cluster: WorkerCluster) -> None:
    """After its third run it is answered with input_failed; the entries of its first batch get their vectors.

    It becomes a dead letter. After `redbatch dead requeue`, when it no longer kills the engine, it is answered.
    """
    worker = await cluster.start_worker("simulated:base_ms=1500,item_ms=0")
    neighbours: list[PendingRequest] = await cluster.submit_many([[f"before {i}"] for i in range(2)])
    killer = await cluster.submit("kills")
    rows: Any = await cluster.raw.xrevrange(cluster.lane, count=1)
    neighbours += await cluster.submit_many([[f"after {i}"] for i in range(2)])
    await kill_engine_when_running(cluster, worker, f"0/{rows[0][0].decode()}", times=3)
    reply = await cluster.wait_for_reply(killer.request_id)
    assert isinstance(reply, Failure)
    assert reply.code == "input_failed"
    await cluster.check_replies(neighbours)
    assert await metric(worker, "redbatch_engine_restarts_total") == 3

    async def is_counted() -> bool:
        return await metric(worker, "redbatch_dead_letters_total") == 1

    await wait_until(is_counted, "the dead letter is counted, as the worker does after its reply")
    assert await cluster.is_empty()
    (letter,) = await dead_letters.read(cluster.connection, cluster.keys, 10)
    assert (letter.request_id, letter.attempts) == (killer.request_id, 3)
    assert (letter.worker, letter.error) == ((await cluster.live_workers()).pop(), f"input_failed: {reply.message}")
    options = ["--redis-url", as_user(cluster.url, "admin"), "--queue", cluster.keys.queue]
    result = await asyncio.to_thread(CliRunner().invoke, app, ["dead", "requeue", letter.letter_id, *options])
    assert (result.exit_code, result.output) == (0, f"{letter.letter_id}: answered\n")
    assert await cluster.is_empty()
    assert await dead_letters.count(cluster.connection, cluster.keys) == 0


async def test_a_restarted_worker_finds_all_of_its_entries(cluster: WorkerCluster) -> None:
    """A worker with the same id finds more entries than a window, or one reply, holds, and those that it had begun.

    For a minute no other worker may reclaim them. An attempt counts for the begun ones, the first and the last, which
    are given up as none is left to them.
    """
    number = MAX_CLAIM + 100
    requests = await cluster.submit_many([[f"text {i}"] for i in range(number)])
    rows: Any = await cluster.raw.xreadgroup(GROUP, "pod-0", {cluster.lane: ">"}, count=number)
    begun = [rows[0][1][at][0] for at in (0, -1)]
    await cluster.raw.set(cluster.keys.begun("pod-0"), b" ".join(b"0/" + each for each in begun), px=60_000)
    await cluster.start_worker(worker_id="pod-0", reclaim_idle_ms=60_000, max_attempts=1, max_dead_letters=0)
    for each in (requests[0], requests[-1]):
        assert await cluster.wait_for_error_code(each.request_id) == "input_failed"
    await cluster.check_replies(requests[1:-1])


async def test_a_restarted_worker_counts_the_attempt(cluster: WorkerCluster) -> None:
    """A restarted worker with the same id, such as a pod, counts an attempt for the entries that were running."""
    settings = SHORT_TIMES | {"worker_id": "pod-0", "max_batch_size": 1, "reclaim_idle_ms": 5_000}
    first = await cluster.start_worker(SLOW, **settings)
    requests = await cluster.submit_many([["one"], ["two"]])
    await wait_until(cluster.has_entry_in_progress, "a batch is running")
    first.signal(signal.SIGSTOP)
    running = {name.split("/")[1] for name in await cluster.entries_in_progress()}
    first.kill()
    # Slower than the first: they must not be done before they are seen.
    await cluster.start_worker("simulated:base_ms=1500,item_ms=0", **settings, ready=False)

    async def is_counted() -> bool:
        counts = {row["message_id"].decode(): row["times_delivered"] - 1 for row in await cluster.pending_entries()}
        return {name for name, count in counts.items() if count} == running

    await wait_until(is_counted, "the attempt is counted", timeout_s=60)
    await cluster.check_replies(requests)


async def test_losing_an_entry_makes_a_worker_read_its_pending_entries(
    cluster: WorkerCluster,
) -> None:
    """If another consumer claims an entry of a worker, it reads its pending entries, as its group may have changed.

    So it finds an entry whose delivery it did not receive.
    """
    await cluster.start_worker(
        "simulated:base_ms=1000,item_ms=0", worker_id="pod-0", max_batch_size=1, claim_window=3, reclaim_idle_ms=60_000
    )
    requests = await cluster.submit_many([[f"text {i}"] for i in range(3)])

    async def holds_all() -> bool:
        return len(await cluster.pending_entries()) == len(requests)

    await wait_until(holds_all, "it holds as many entries as it may")
    await wait_until(cluster.has_entry_in_progress, "the first entry is running")
    undelivered = await cluster.submit("undelivered")
    rows: Any = await cluster.raw.xreadgroup(GROUP, "pod-0", {cluster.lane: ">"}, count=1)
    assert len(rows[0][1]) == 1
    running = {name.split("/")[1] for name in await cluster.entries_in_progress()}
    waiting = [row["message_id"] for row in (await cluster.pending_entries())[: len(requests)]]
    claimed: Any = next(each for each in reversed(waiting) if each.decode() not in running)
    await cluster.raw.xclaim(cluster.lane, GROUP, "other", 0, [claimed])
    await cluster.check_replies([undelivered])
    await cluster.raw.xclaim(cluster.lane, GROUP, "pod-0", 0, [claimed], idle=120_000)
    await cluster.check_replies(requests)
