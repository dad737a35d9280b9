"""What is killed with -9, and what becomes of the work: the worker, its engine, its fork server."""

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

from redbatch.commands import app
from shared import dead_letters
from shared.keys import GROUP
from shared.messages import Failure
from tests.integration.worker.worker_cluster import PendingRequest, WorkerCluster, metric, num_reclaimed
from tests.processes import Program
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = "simulated:base_ms=300,item_ms=0"
LIVELY: dict[str, Any] = {"heartbeat_s": 0.2, "heartbeat_ttl_s": 1.0, "reclaim_idle_ms": 500, "renew_ms": 100}
LARGEST_GAP_MS = 3_500


def fork_server(worker: Program) -> psutil.Process:
    """Returns the process that forks a worker's engines."""
    (server,) = worker.descendants("redbatch forkserver")
    return server


def engines(worker: Program) -> list[psutil.Process]:
    """Returns what the fork server has forked, ready or not."""
    with contextlib.suppress(psutil.Error, ValueError):
        return [each for each in fork_server(worker).children() if each.status() != psutil.STATUS_ZOMBIE]
    return []


@contextlib.asynccontextmanager
async def heartbeats_go_on(cluster: WorkerCluster) -> AsyncIterator[None]:
    """Watches the one worker's heartbeat: its key is always there, and its time never stands still for long."""
    (name,) = await cluster.live_workers()
    times: list[float] = []
    missed: list[float] = []

    over = asyncio.Event()  # no cancellation: redis-py may swallow one on Python 3.11

    async def watch() -> None:
        while not over.is_set():
            if not await cluster.raw.exists(cluster.keys.worker(name)):
                missed.append(time.monotonic())
            times.append(float(await cluster.raw.zscore(cluster.keys.workers, name) or 0.0))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        over.set()
        await task
    seen = sorted(set(times))
    assert missed == []
    assert max((later - earlier for earlier, later in pairwise(seen)), default=0) <= LARGEST_GAP_MS


async def new_engine(worker: Program, killed: list[psutil.Process], ready_before: int) -> None:
    """Kills processes and waits for another ready engine; prints how long that took, and asserts it roughly."""
    old = {each.pid for each in engines(worker)}
    began = time.monotonic()
    for each in killed:
        each.kill()
    await wait_until(lambda: bool({each.pid for each in engines(worker)} - old), "an engine is started", timeout_s=20)
    started = time.monotonic() - began
    await wait_until(lambda: len(worker.log_records("engine ready")) > ready_before, "an engine is ready", timeout_s=20)
    ready = time.monotonic() - began
    print(f"\nnew engine: started {started:.2f} s, ready {ready:.2f} s after the kill")  # noqa: T201 - a measure
    assert started < 4
    assert ready < 15
    assert worker.running


async def test_another_worker_answers_for_a_dead_one(cluster: WorkerCluster) -> None:
    """Every entry of a worker killed within a batch is run by another, and nothing of the dead one is left.

    An attempt is counted for what had begun, and for nothing else.
    """
    first = await cluster.start_worker(SLOW, max_batch_size=2, **LIVELY)
    asked = await cluster.submit_many([[f"text {i}"] for i in range(12)])
    await wait_until(cluster.has_entry_in_progress, "a batch runs")
    first.signal(signal.SIGSTOP)
    begun = {name.split("/")[1] for name in await cluster.entries_in_progress()}
    rows = await cluster.pending_entries()
    held, mine = {row["message_id"].decode() for row in rows}, {row["consumer"] for row in rows}
    assert (len(held) > len(begun), len(mine)) == (True, 1)
    first.kill()
    second = await cluster.start_worker(SLOW, ready=False, **LIVELY)

    async def elsewhere() -> bool:
        rows = await cluster.pending_entries()
        return bool(rows) and {row["consumer"] for row in rows}.isdisjoint(mine)

    await wait_until(elsewhere, "the other worker has taken them", timeout_s=60, poll_s=0.002)
    attempts = {row["message_id"].decode(): row["times_delivered"] - 1 for row in await cluster.pending_entries()}
    assert begun
    assert attempts == {name: int(name in begun) for name in held & attempts.keys()}
    await cluster.check_replies(asked)
    assert await cluster.is_empty()
    await wait_until(lambda: first.session() == [], "engine and fork server of the dead worker are gone")
    await wait_until(cluster.has_only_live_consumers, "the dead worker's name has left the group", timeout_s=10)
    released, silent = await num_reclaimed(second)
    assert (released, silent > 0) == (0, True)
    assert second.running


@pytest.mark.parametrize("model", ["null", "simulated:base_ms=5,item_ms=3"])
async def test_a_dead_engine_is_replaced_at_once(cluster: WorkerCluster, model: str) -> None:
    """While none is ready, heartbeats go on, and what comes in is answered by the next."""
    worker = await cluster.start_worker(model)
    async with heartbeats_go_on(cluster):
        for round_ in range(2):
            await cluster.check_replies(await cluster.submit_many([["before"]]))
            await new_engine(worker, engines(worker), round_ + 1)
            await cluster.check_replies(await cluster.submit_many([["after"], ["more"]]))
    assert await metric(worker, "redbatch_engine_restarts_total") == 2


async def test_a_hung_engine_is_replaced(cluster: WorkerCluster) -> None:
    """It is stopped in a batch: within its bound it is killed, another runs the batch, and heartbeats go on."""
    worker = await cluster.start_worker("simulated:base_ms=50,item_ms=0", engine_hang_s=2, max_batch_size=1)
    await cluster.check_replies(await cluster.submit_many([["before"]]))
    asked = await cluster.submit_many([[f"text {i}"] for i in range(50)])
    await wait_until(cluster.has_entry_in_progress, "a batch runs")
    (engine,) = engines(worker)
    async with heartbeats_go_on(cluster):
        engine.send_signal(signal.SIGSTOP)
        await cluster.check_replies(asked)
    assert await metric(worker, "redbatch_engine_hangs_total") == 1
    assert [each["after_s"] >= 2 for each in worker.log_records("engine hangs: killed")] == [True]
    assert not engine.is_running()


async def test_a_slow_batch_is_no_hang(cluster: WorkerCluster) -> None:
    """The first one has all the time that a model may take to warm up, and later ones ten times what others took."""
    worker = await cluster.start_worker("simulated:base_ms=1200,item_ms=0", engine_hang_s=0.3)
    for text in ("one", "two"):
        await cluster.check_replies(await cluster.submit_many([[text]]))
    assert await metric(worker, "redbatch_engine_hangs_total") == 0


async def test_a_pause_of_the_whole_worker_is_no_hang(cluster: WorkerCluster) -> None:
    """A host that stood still longer than the bound did so for both processes."""
    worker = await cluster.start_worker("simulated:base_ms=50,item_ms=0", max_batch_size=1, engine_hang_s=0.5)
    await cluster.check_replies(await cluster.submit_many([["before"]]))
    asked = await cluster.submit_many([[f"text {i}"] for i in range(20)])
    await wait_until(cluster.has_entry_in_progress, "a batch runs")
    (engine,) = engines(worker)
    worker.signal(signal.SIGSTOP)
    engine.send_signal(signal.SIGSTOP)
    await asyncio.sleep(2.0)  # the pause
    worker.signal(signal.SIGCONT)
    engine.send_signal(signal.SIGCONT)
    await cluster.check_replies(asked)
    assert await metric(worker, "redbatch_engine_hangs_total") == 0


async def test_the_batch_of_a_dead_engine_is_run_again(cluster: WorkerCluster) -> None:
    """All of its entries are answered by the same worker, each by itself."""
    worker = await cluster.start_worker(SLOW)
    asked = await cluster.submit_many([[f"text {i}", "and"] for i in range(3)])
    await wait_until(cluster.has_entry_in_progress, "the batch runs")
    async with heartbeats_go_on(cluster):
        await new_engine(worker, engines(worker), 1)
        await cluster.check_replies(asked)
    assert await cluster.is_empty()
    assert await metric(worker, "redbatch_reclaimed_total") == 0


async def test_a_dead_fork_server_is_replaced_too(cluster: WorkerCluster) -> None:
    """Its engine dies with it; the worker starts both again, and answers what it held."""
    worker = await cluster.start_worker(SLOW)
    asked = await cluster.submit_many([["one"], ["two"]])
    await wait_until(cluster.has_entry_in_progress, "the batch runs")
    old = fork_server(worker)
    async with heartbeats_go_on(cluster):
        await new_engine(worker, [old], 1)
        await cluster.check_replies(asked)
    assert fork_server(worker).pid != old.pid


async def kill_when_begun(cluster: WorkerCluster, worker: Program, name: str, times: int) -> None:
    """Plays an input that kills its engine: each time that its run begins, the engine dies."""

    async def begun() -> bool:
        return name in await cluster.entries_in_progress()

    for _ in range(times):
        await wait_until(begun, "it begins", timeout_s=20)
        for each in engines(worker):
            each.kill()
        await cluster.raw.delete(*[key async for key in cluster.raw.scan_iter(match=cluster.keys.begun("*"))])


@pytest.mark.leaves_dead_letters
async def test_an_input_that_kills_the_engine_fails_alone(cluster: WorkerCluster) -> None:
    """After its third begun run it is answered input_failed; those who shared its first batch get their vectors.

    It is kept as a dead letter. Run again by hand, when it kills no more, it is answered.
    """
    worker = await cluster.start_worker("simulated:base_ms=700,item_ms=0")
    neighbours: list[PendingRequest] = await cluster.submit_many([[f"before {i}"] for i in range(2)])
    killer = await cluster.submit("kills")
    rows: Any = await cluster.raw.xrevrange(cluster.lane, count=1)
    neighbours += await cluster.submit_many([[f"after {i}"] for i in range(2)])
    await kill_when_begun(cluster, worker, f"0/{rows[0][0].decode()}", times=3)
    reply = await cluster.wait_for_reply(killer.request_id)
    assert isinstance(reply, Failure)
    assert reply.code == "input_failed"
    await cluster.check_replies(neighbours)
    assert await metric(worker, "redbatch_engine_restarts_total") == 3
    assert await metric(worker, "redbatch_dead_letters_total") == 1
    assert await cluster.is_empty()
    (letter,) = await dead_letters.read(cluster.connection, cluster.keys, 10)
    assert (letter.request_id, letter.attempts) == (killer.request_id, 3)
    assert (letter.worker, letter.error) == ((await cluster.live_workers()).pop(), f"input_failed: {reply.message}")
    where = ["--redis-url", as_user(cluster.url, "admin"), "--queue", cluster.keys.queue]
    result = await asyncio.to_thread(CliRunner().invoke, app, ["dead", "requeue", letter.letter_id, *where])
    assert (result.exit_code, result.output) == (0, f"{letter.letter_id}: answered\n")
    assert await cluster.is_empty()
    assert await dead_letters.count(cluster.connection, cluster.keys) == 0


async def test_a_worker_that_comes_back_under_its_name_finds_all_that_it_had(cluster: WorkerCluster) -> None:
    """More entries than one window holds; nobody may take them for a minute, so it is its own look that finds them."""
    asked = await cluster.submit_many([[f"text {i}"] for i in range(400)])
    await cluster.raw.xreadgroup(GROUP, "pod-0", {cluster.lane: ">"}, count=400)
    await cluster.start_worker(worker_id="pod-0", reclaim_idle_ms=60_000)
    await cluster.check_replies(asked)


async def test_a_worker_that_comes_back_under_its_name_counts_the_attempt(cluster: WorkerCluster) -> None:
    """A pod whose container was killed finds its own entries: what had begun then has had a run that did not end."""
    settings = LIVELY | {"worker_id": "pod-0", "max_batch_size": 1, "reclaim_idle_ms": 5_000}
    first = await cluster.start_worker(SLOW, **settings)
    asked = await cluster.submit_many([["one"], ["two"]])
    await wait_until(cluster.has_entry_in_progress, "a batch runs")
    first.signal(signal.SIGSTOP)
    begun = {name.split("/")[1] for name in await cluster.entries_in_progress()}
    first.kill()
    await cluster.start_worker(SLOW, **settings, ready=False)

    async def counted() -> bool:
        counts = {row["message_id"].decode(): row["times_delivered"] - 1 for row in await cluster.pending_entries()}
        return {name for name, count in counts.items() if count} == begun

    await wait_until(counted, "the attempt is counted", timeout_s=60)
    await cluster.check_replies(asked)


async def test_what_comes_to_a_worker_that_does_not_hear_of_it_is_found_when_it_loses_another(
    cluster: WorkerCluster,
) -> None:
    """Another takes an entry that waits with it, so its group may have changed: it reads what is pending for it."""
    await cluster.start_worker(
        "simulated:base_ms=1000,item_ms=0", worker_id="pod-0", max_batch_size=1, claim_window=3, reclaim_idle_ms=60_000
    )
    asked = await cluster.submit_many([[f"text {i}"] for i in range(3)])

    async def held() -> bool:
        return len(await cluster.pending_entries()) == len(asked)

    await wait_until(held, "it holds what it may")
    await wait_until(cluster.has_entry_in_progress, "the first runs")
    unheard = await cluster.submit("unheard of")
    rows: Any = await cluster.raw.xreadgroup(GROUP, "pod-0", {cluster.lane: ">"}, count=1)
    assert len(rows[0][1]) == 1
    begun = {name.split("/")[1] for name in await cluster.entries_in_progress()}
    waiting = [row["message_id"] for row in (await cluster.pending_entries())[: len(asked)]]
    taken: Any = next(each for each in reversed(waiting) if each.decode() not in begun)
    await cluster.raw.xclaim(cluster.lane, GROUP, "other", 0, [taken])
    await cluster.check_replies([unheard], timeout_s=10)
    await cluster.raw.xclaim(cluster.lane, GROUP, "pod-0", 0, [taken], idle=120_000)
    await cluster.check_replies(asked)
