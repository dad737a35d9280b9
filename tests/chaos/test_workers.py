"""Workers that die, hang, pause or lose their network while they hold entries: others answer the open calls in time."""

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
from tests.chaos.scenario import (
    FAST_WORKER,
    MODEL,
    RECLAIM_BOUND_S,
    Scenario,
    all_correct,
    on_operations,
    on_shards_and_operations,
    seconds_until,
    worker_name,
)
from tests.processes import Program
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

RESTART_S = 0.5
HANG_S, BRIEF_HANG_S = 1.0, 2.0
"""Time without progress after which an engine hangs: in `make chaos`, and in the short form."""


@pytest.mark.starts_first
@on_shards_and_operations
async def test_calls_survive_the_death_of_their_worker(scenario: Scenario) -> None:
    """F1: no call fails when busy workers are killed with SIGKILL repeatedly and others replace them."""
    await scenario.start(workers=3)
    kills, recoveries = scenario.repeats(3, 100), []
    async with scenario.load(clients=48) as calls:
        for _ in range(kills):
            victim, name = await scenario.stop_busy_worker()
            scenario.workers.remove(victim)
            victim.kill()
            recoveries.append(await scenario.wait_until_taken_over(name))
            await scenario.start_worker()
    living = {worker_name(each) for each in scenario.workers}

    async def only_living_workers() -> bool:
        lane = scenario.cluster.keys.lanes[0]
        rows: list[Any] = [row for raw in scenario.shards for row in await raw.xinfo_consumers(lane, GROUP)]
        return {row["name"].decode() for row in rows} <= living

    await wait_until(only_living_workers, "killed workers have left the consumer group", timeout_s=10)
    recovery_s = round(max(recoveries), 2)
    verdict = scenario.judge("F1 busy worker killed", calls, kills=kills, taken_over_s=recovery_s)
    assert all_correct(verdict)
    assert recovery_s <= RECLAIM_BOUND_S + scenario.margin_s


def engine_of(worker: Program) -> psutil.Process | None:
    """Returns the worker's engine; None if there is none at this moment."""
    for server in worker.descendants("redbatch forkserver"):
        with contextlib.suppress(psutil.Error):
            for child in server.children():
                if child.status() != psutil.STATUS_ZOMBIE:
                    return child
    return None


async def wait_for_new_engine(worker: Program, other_than: int, timeout_s: float = 20.0) -> float:
    """Waits until a worker has another engine than that one; returns how long that took, in s."""

    async def started() -> bool:
        engine = engine_of(worker)
        return engine is not None and engine.pid != other_than

    return await seconds_until(started, "another engine is started", timeout_s)


async def wait_until_ready(worker: Program) -> None:
    """Waits until a worker's last engine is ready."""

    def ready() -> bool:
        return len(worker.log_records("engine ready")) > len(worker.log_records("engine died"))

    await wait_until(ready, "the engine is ready", timeout_s=20)


def p99_s(calls: Sequence[Call]) -> float:
    """Returns the p99 latency of calls in s."""
    return statistics.quantiles([call.seconds for call in calls], n=100)[98]


@on_operations
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
async def test_calls_survive_their_engine(scenario: Scenario, how: signal.Signals) -> None:
    """F2: when a busy engine is killed or hangs, its worker keeps sending heartbeats and starts another engine."""
    hang_s = HANG_S if scenario.thorough else BRIEF_HANG_S
    await scenario.start(workers=2, engine_hang_s=hang_s)
    faults, restarts = scenario.repeats(2, 20), []
    async with scenario.load() as calls:
        for _ in range(faults):
            worker, name = await scenario.pick_busy_worker()
            engine = engine_of(worker)
            assert engine is not None
            engine.send_signal(how)
            restarts.append(await wait_for_new_engine(worker, engine.pid))
            assert await scenario.raw.exists(scenario.cluster.keys.worker(name)), "the worker sends no heartbeat"
            await wait_until_ready(worker)
    restarted_s = round(max(restarts), 2)
    deaths = sum(len(each.log_records("engine died")) for each in scenario.workers)
    verdict = scenario.judge(
        f"F2 engine {'killed' if how is signal.SIGKILL else 'hangs'}",
        calls,
        faults=faults,
        deaths=deaths,
        restarted_s=restarted_s,
        p99_s=round(p99_s(calls), 2),
    )
    assert deaths == faults
    assert all_correct(verdict)
    bounds = [line["bound_s"] for each in scenario.workers for line in each.log_records("engine hangs: killed")]
    assert len(bounds) == (faults if how is signal.SIGSTOP else 0)
    assert restarted_s <= RESTART_S + scenario.margin_s + max(bounds, default=0.0)
    assert max(bounds, default=hang_s) <= 2 * hang_s


@pytest.mark.long
async def test_a_worker_that_sleeps_past_its_time_changes_nothing(scenario: Scenario) -> None:
    """F3: the commits of a worker that was stopped until others took over its entries are refused."""
    await scenario.start(workers=2)
    faults = scenario.repeats(2, 20)
    async with scenario.load() as calls:
        for _ in range(faults):
            worker, name = await scenario.stop_busy_worker()
            try:
                await scenario.wait_until_taken_over(name)
            finally:
                worker.signal(signal.SIGCONT)
            await scenario.wait_until_busy(name, timeout_s=20)
    refused = await refused_commits(scenario)
    verdict = scenario.judge("F3 worker sleeps past its time", calls, faults=faults, commits_refused=refused)
    assert refused > 0, "no entry had two answers"
    assert all_correct(verdict)


async def refused_commits(scenario: Scenario) -> int:
    """Returns the number of commits that were too late."""
    return int(await scenario.worker_metric('redbatch_commits_total{outcome="found nothing"}'))


async def silence_busy_worker(scenario: Scenario, proxy: FaultProxy, name: str) -> None:
    """Makes the proxy drop all data from a moment at which the worker behind it holds an entry.

    Raises AssertionError: that failed in 100 attempts.
    """
    for _ in range(100):
        await scenario.wait_until_busy(name, timeout_s=20)
        proxy.silent = True
        await asyncio.sleep(0.02)  # data that the proxy had forwarded has reached Redis
        if await scenario.pending_of(name):
            return
        proxy.silent = False
        proxy.cut()
    raise AssertionError(f"{name} was never cut off while it held an entry")


@pytest.mark.long
async def test_calls_survive_a_worker_that_is_cut_off(scenario: Scenario, proxy: FaultProxy) -> None:
    """F16: the entries of a worker whose network silently drops all data are taken over within the bound."""
    await scenario.start(workers=1)
    far = await scenario.cluster.processes.start(
        "far worker",
        "gpuworker",
        scenario.cluster.env(model=MODEL, **FAST_WORKER | {"redis_url": proxy.url}),
    )
    faults, recoveries = scenario.repeats(2, 15), []
    await wait_until(lambda: bool(far.log_records("engine ready")), "the far worker is ready", timeout_s=30)
    name = worker_name(far)
    async with scenario.load() as calls:
        for _ in range(faults):
            await silence_busy_worker(scenario, proxy, name)
            recoveries.append(await scenario.wait_until_taken_over(name))
            await asyncio.sleep(0.5)
            proxy.silent = False
            proxy.cut()
    recovery_s = round(max(recoveries), 2)
    verdict = scenario.judge("F16 worker's network drops everything", calls, faults=faults, taken_over_s=recovery_s)
    assert all_correct(verdict)
    assert recovery_s <= RECLAIM_BOUND_S + scenario.margin_s
