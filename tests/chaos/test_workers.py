"""Workers that die, hang, sleep or are cut off amid their work: others answer the same open calls, in time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import statistics
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from shared.keys import GROUP
from tests.chaos.history import Call
from tests.chaos.scenario import LIVELY, MODEL, RECLAIM_BOUND_S, Scene, name_of, seconds_until, whole
from tests.processes import Program
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

RESTART_S = 0.5
HANG_S, BRIEF_HANG_S = 1.0, 2.0
"""An engine that makes no progress for so long hangs: in `make chaos`, and in the short form."""


@pytest.mark.longest
async def test_calls_survive_the_death_of_their_worker(scene: Scene) -> None:
    """F1: one of three workers is killed with -9 amid its work, again and again, and another takes its place."""
    await scene.open(workers=3)
    kills, recoveries = scene.times(3, 100), []
    async with scene.load(clients=48) as calls:
        for _ in range(kills):
            victim, name = await scene.stop_amid_work()
            scene.workers.remove(victim)
            victim.kill()
            recoveries.append(await scene.taken_over(name))
            await scene.hire()
    living = {name_of(each) for each in scene.workers}

    async def only_the_living() -> bool:
        rows: Any = await scene.raw.xinfo_consumers(scene.house.keys.lanes[0], GROUP)
        return {row["name"].decode() for row in rows} <= living

    await wait_until(only_the_living, "the names of the dead have left the group", timeout_s=10)
    recovery_s = round(max(recoveries), 2)
    verdict = scene.judge("F1 worker killed amid its work", calls, kills=kills, taken_over_s=recovery_s)
    assert whole(verdict)
    assert recovery_s <= RECLAIM_BOUND_S + scene.margin_s


def engine_of(worker: Program) -> psutil.Process | None:
    """Returns the worker's engine, if there is one now."""
    for server in worker.descendants("redbatch forkserver"):
        with contextlib.suppress(psutil.Error):
            for child in server.children():
                if child.status() != psutil.STATUS_ZOMBIE:
                    return child
    return None


async def until_engine(worker: Program, other_than: int, timeout_s: float = 20.0) -> float:
    """Returns how long it takes until a worker has another engine than that one."""

    async def started() -> bool:
        engine = engine_of(worker)
        return engine is not None and engine.pid != other_than

    return await seconds_until(started, "another engine is started", timeout_s)


async def until_ready(worker: Program) -> None:
    """Waits until a worker's last engine is ready."""

    def ready() -> bool:
        return len(worker.logged("engine ready")) > len(worker.logged("engine died"))

    await wait_until(ready, "the engine is ready", timeout_s=20)


def p99_s(calls: Sequence[Call]) -> float:
    """Returns the time that 99 of 100 calls took less than."""
    return statistics.quantiles([call.seconds for call in calls], n=100)[98]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
async def test_calls_survive_their_engine(scene: Scene, how: signal.Signals) -> None:
    """F2: the engine is killed, or hangs, amid its work; the worker still tells that it lives, and starts another."""
    hang_s = HANG_S if scene.thorough else BRIEF_HANG_S
    await scene.open(workers=2, engine_hang_s=hang_s)
    strikes, restarts = scene.times(2, 20), []
    async with scene.load() as calls:
        for _ in range(strikes):
            worker, name = await scene.busy_worker()
            engine = engine_of(worker)
            assert engine is not None
            engine.send_signal(how)
            restarts.append(await until_engine(worker, engine.pid))
            assert await scene.raw.exists(scene.house.keys.worker(name)), "its heartbeat goes on"
            await until_ready(worker)
    restarted_s = round(max(restarts), 2)
    deaths = sum(len(each.logged("engine died")) for each in scene.workers)
    verdict = scene.judge(
        f"F2 engine {'killed' if how is signal.SIGKILL else 'hangs'}",
        calls,
        strikes=strikes,
        deaths=deaths,
        restarted_s=restarted_s,
        p99_s=round(p99_s(calls), 2),
    )
    assert deaths == strikes
    assert whole(verdict)
    bounds = [line["bound_s"] for each in scene.workers for line in each.logged("engine hangs: killed")]
    assert len(bounds) == (strikes if how is signal.SIGSTOP else 0)
    assert restarted_s <= RESTART_S + scene.margin_s + max(bounds, default=0.0)
    assert max(bounds, default=hang_s) <= 2 * hang_s


async def test_a_worker_that_sleeps_past_its_time_changes_nothing(scene: Scene) -> None:
    """F3: a worker is stopped until others have taken what it held; when it goes on, what it commits is refused."""
    await scene.open(workers=2)
    strikes = scene.times(2, 20)
    async with scene.load() as calls:
        for _ in range(strikes):
            worker, name = await scene.stop_amid_work()
            try:
                await scene.taken_over(name)
            finally:
                worker.signal(signal.SIGCONT)
            await scene.amid_work(name, timeout_s=20)
    refused = await refused_commits(scene)
    verdict = scene.judge("F3 worker sleeps past its time", calls, strikes=strikes, commits_refused=refused)
    assert refused > 0, "two had an answer for the same entry"
    assert whole(verdict)


async def refused_commits(scene: Scene) -> int:
    """Returns how many answers came second."""
    return int(await scene.total('redbatch_commits_total{outcome="found nothing"}'))


async def silence_amid_work(scene: Scene, proxy: FaultProxy, name: str) -> None:
    """Has the proxy swallow everything from a moment at which the worker behind it holds something."""
    for _ in range(100):
        await scene.amid_work(name, timeout_s=20)
        proxy.silent = True
        await asyncio.sleep(0.02)  # what the proxy had passed on by then has come to Redis
        if await scene.owed(name):
            return
        proxy.silent = False
        proxy.cut()
    raise AssertionError(f"{name} was never cut off amid its work")


@pytest.mark.long
async def test_calls_survive_a_worker_that_is_cut_off(scene: Scene, proxy: FaultProxy) -> None:
    """F16: one worker's network swallows everything and tells nobody; what it holds is taken over within the bound."""
    await scene.open(workers=1)
    far = await scene.house.processes.start(
        "far worker",
        "gpuworker",
        scene.house.env(model=MODEL, **LIVELY | {"redis_url": proxy.url}),
    )
    strikes, recoveries = scene.times(2, 15), []
    await wait_until(lambda: bool(far.logged("engine ready")), "the far worker is ready", timeout_s=30)
    name = name_of(far)
    async with scene.load() as calls:
        for _ in range(strikes):
            await silence_amid_work(scene, proxy, name)
            recoveries.append(await scene.taken_over(name))
            await asyncio.sleep(0.5)
            proxy.silent = False
            proxy.cut()
    recovery_s = round(max(recoveries), 2)
    verdict = scene.judge("F16 worker's network swallows everything", calls, strikes=strikes, taken_over_s=recovery_s)
    assert whole(verdict)
    assert recovery_s <= RECLAIM_BOUND_S + scene.margin_s
