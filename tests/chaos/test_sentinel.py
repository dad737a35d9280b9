"""Redis with two replicas and three sentinels: its master dies, hangs, comes back empty, or is changed on purpose."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.history import Call, Verdict, max_in_flight
from tests.chaos.scenario import LONG_GRACE, Figures, Scenario, all_correct
from tests.chaos.test_masters import MODEL
from tests.haproxy import haproxy
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.sentinels import SentinelGroup, sentinel_group
from tests.servers import Server

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MAX_FAILOVER_S = 4.0
"""Longest answer where the master dies or hangs and `down-after` is 1 s."""

MAX_FOLLOW_S = 1.5
"""Longest time from the promotion of a replica to the answers of all calls that waited at a master that hangs. So they
take MAX_FAILOVER_S, if the sentinels promote within 2.5 s: on a busy machine they took up to 3 s."""

MAX_PLANNED_S = 0.5
"""Longest answer in a planned failover, which sentinels announce: 0.15 s were measured."""

HANG_S = 6.0
DEMOTED_AFTER_S = 12.0
"""How long sentinels may take to make a replica of a master that comes back."""


@dataclass
class Watched:
    """A cluster whose URL names sentinels."""

    scenario: Scenario
    group: SentinelGroup
    folder: Path

    async def start(self) -> None:
        """Starts two gateways and two workers. No worker takes an entry from another: lost ones are found otherwise."""
        self.scenario.cluster.environment |= LONG_GRACE
        await self.scenario.start(model=MODEL, reclaim_idle_ms=60_000)

    async def kill_master(self) -> Server:
        """Kills the master, and waits until another is named; returns the dead one."""
        master = await self.group.master()
        os.kill(master.pid, signal.SIGKILL)
        await self.group.wait_for_failover(master)
        return master

    async def judge(self, fault: str, calls: list[Call], max_s: float, **figures: object) -> Verdict:
        """Records a verdict: all calls must be answered, none later than `max_s`."""
        resubmitted = await self.scenario.resubmitted()
        verdict = self.scenario.judge(f"F25 {fault}", calls, resubmitted=resubmitted, **figures)
        assert all_correct(verdict)
        assert resubmitted <= max_in_flight(calls)
        assert verdict.slowest_s <= max_s + self.scenario.extra_s
        return verdict


@pytest_asyncio.fixture
async def watched(
    queue_name: str, thorough: bool, rows: list[Figures], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Watched]:
    """Yields a cluster on the master of a group that is whole."""
    folder = tmp_path_factory.mktemp("watched")
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(sentinel_group(folder))
        raw = await stack.enter_async_context(group.client(group.servers[0]))
        processes = await stack.enter_async_context(Processes(folder))
        scenario = Scenario(GatewayCluster(processes, group.url, queue_name), raw, thorough, rows)
        yield Watched(scenario, group, folder)
        assert not scenario.crash_logs()


async def test_the_master_dies(watched: Watched) -> None:
    """F25: a replica is promoted, and all connections find it."""
    await watched.start()
    async with watched.scenario.paced_load() as calls:
        await watched.kill_master()
    await watched.judge("Sentinel: the master dies", calls, MAX_FAILOVER_S)


async def test_the_first_sentinel_and_the_master_die(watched: Watched) -> None:
    """F25: the other sentinels are enough, and the dead one delays no process."""
    await watched.start()
    async with watched.scenario.paced_load() as calls:
        watched.group.sentinels[0].kill()
        await asyncio.sleep(0.5)
        await watched.kill_master()
    await watched.judge("Sentinel: the first sentinel and the master die", calls, MAX_FAILOVER_S)


async def test_the_old_master_comes_back_empty(watched: Watched) -> None:
    """F25: it takes writes until sentinels make it a replica; who meets it does not use it."""
    await watched.start()
    async with watched.scenario.paced_load() as calls:
        master = await watched.group.master()
        os.kill(master.pid, signal.SIGKILL)
        await asyncio.to_thread(master.start)
        await asyncio.sleep(DEMOTED_AFTER_S if watched.scenario.thorough else MAX_FAILOVER_S)
    is_replaced = await watched.group.master() is not master  # it may be back before a sentinel notices its death
    fault = "Sentinel: the master dies and comes back empty"
    await watched.judge(fault, calls, MAX_FAILOVER_S, another_master=is_replaced)


@pytest.mark.long
async def test_the_master_hangs(watched: Watched) -> None:
    """F25: its connections stay open and are not answered, as those to a node that is lost."""
    await watched.start()
    async with watched.scenario.paced_load() as calls:
        master = await watched.group.master()
        stopped_at = time.monotonic()
        os.kill(master.pid, signal.SIGSTOP)
        try:
            await watched.group.wait_for_failover(master)
            promoted_s = time.monotonic() - stopped_at
            await asyncio.sleep(HANG_S / 2)
        finally:
            os.kill(master.pid, signal.SIGCONT)
        await asyncio.sleep(HANG_S / 2)
    max_s = max(MAX_FAILOVER_S, promoted_s + MAX_FOLLOW_S)
    await watched.judge("Sentinel: the master hangs", calls, max_s, promoted_s=round(promoted_s, 2))


@pytest.mark.long
@pytest.mark.exclusive
async def test_planned_failovers(watched: Watched) -> None:
    """F25: as for maintenance: the old master takes writes until it follows the new one."""
    await watched.start()
    rounds = watched.scenario.repeats(2, 10)
    async with watched.scenario.paced_load() as calls:
        for _ in range(rounds):
            await asyncio.sleep(1.2)  # gateways and workers read the replication id of their master each second
            await watched.group.fail_over()
            await watched.group.wait_until_joined()
    resubmitted = await watched.scenario.resubmitted()
    fault = "F25 Sentinel: planned failovers"
    verdict = watched.scenario.judge(fault, calls, rounds=rounds, resubmitted=resubmitted)
    assert all_correct(verdict)
    assert resubmitted <= rounds * max_in_flight(calls)
    assert verdict.slowest_s <= MAX_PLANNED_S + watched.scenario.extra_s


@pytest.mark.long
async def test_haproxy_leads_to_two_masters(watched: Watched) -> None:
    """F25: haproxy leads to each server that says it is a master: to both, while the old one is back and empty."""
    with haproxy(watched.folder, watched.group.servers) as url:
        watched.scenario.cluster.redis_url = url
        await watched.start()
        async with watched.scenario.paced_load() as calls:
            master = await watched.group.master()
            os.kill(master.pid, signal.SIGKILL)
            await asyncio.to_thread(master.start)
            await asyncio.sleep(DEMOTED_AFTER_S)
        await watched.judge("haproxy: the master dies and comes back empty", calls, MAX_FAILOVER_S)
