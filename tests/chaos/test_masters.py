"""An address that leads to several masters for a while, as in a failover: all connections keep to one of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from tests.chaos.history import max_in_flight
from tests.chaos.scenario import Figures, Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.servers import Server, stopped
from tests.several_redis import follow, promote
from tests.switch import Switch
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=5,item_ms=1"
MAX_LATENCY_S = 4.0
PROMOTED_AFTER_S = 1.3
"""When Sentinel promotes a replica, with a `down-after` of 1 s."""

HANG_S = 6.0
"""How long a master hangs on after another was promoted."""

POLL_S = 0.05
BROKEN = 6
"""Connections to Redis that break while another master is in sight."""


@dataclass
class Masters:
    """A cluster whose address leads to one of several Redis, as its switch decides."""

    scenario: Scenario
    switch: Switch
    servers: Sequence[Server]
    clients: Sequence[redis.asyncio.Redis]

    async def start(self) -> None:
        """Starts two gateways and two workers. No worker takes an entry from another: lost ones are found otherwise."""
        await self.scenario.start(model=MODEL, reclaim_idle_ms=60_000)

    async def length(self, index: int) -> int:
        """Returns the number of entries in the lanes of a Redis; 0 if it does not answer."""
        try:
            return sum([int(await self.clients[index].xlen(lane)) for lane in self.scenario.cluster.keys.lanes])
        except redis.asyncio.RedisError:
            return 0

    @asynccontextmanager
    async def longest_queue(self) -> AsyncIterator[list[int]]:
        """Yields the numbers of entries in the longest queue of any Redis, which grow until the end of the block."""
        lengths = [0]

        async def watch() -> None:
            while True:
                lengths.append(max([await self.length(index) for index in range(len(self.servers))]))
                await asyncio.sleep(POLL_S)

        watching = asyncio.create_task(watch())
        try:
            yield lengths
        finally:
            watching.cancel()


@pytest_asyncio.fixture
async def masters(
    queue_name: str, thorough: bool, rows: list[Figures], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Masters]:
    """Yields a cluster whose address leads to the first of two Redis, of which neither knows the other."""
    async with AsyncExitStack() as stack:
        servers = [Server(), Server()]
        for server in servers:
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        clients = [
            await stack.enter_async_context(redis.asyncio.Redis.from_url(each.url, protocol=2)) for each in servers
        ]
        switch = await stack.enter_async_context(Switch(servers[0]))
        processes = await stack.enter_async_context(Processes(tmp_path_factory.mktemp("masters")))
        cluster = GatewayCluster(processes, switch.url, queue_name)
        scenario = Scenario(cluster, clients[0], thorough, rows)
        yield Masters(scenario, switch, servers, clients)
        assert not scenario.crash_logs()


async def test_the_old_master_comes_back_empty(masters: Masters) -> None:
    """F23: two masters are in sight after a failover, and each connection reaches one at random: all calls succeed.

    Each entry is submitted again at most once, and no queue has more than the calls in flight, and these once more.
    """
    scenario, (old, new) = masters.scenario, masters.servers
    await follow(new, old)
    await masters.start()
    async with masters.longest_queue() as lengths, scenario.paced_load() as calls:
        os.kill(old.pid, signal.SIGKILL)
        await asyncio.sleep(PROMOTED_AFTER_S)
        await promote(new)
        await asyncio.to_thread(old.start)
        await masters.switch.route(old, new)
        for _ in range(scenario.repeats(4, 16)):  # connections are made all the time
            await asyncio.sleep(0.5)
            await masters.switch.cut(1)
        await masters.switch.route(new)
        await asyncio.to_thread(old.stop)
    in_flight, resubmitted = max_in_flight(calls), await scenario.resubmitted()
    found = {"resubmitted": resubmitted, "in_flight": in_flight, "longest_queue": max(lengths)}
    verdict = scenario.judge("F23 failover, the old master back and empty", calls, **found)
    assert all_correct(verdict)
    assert resubmitted <= in_flight
    assert max(lengths) <= 2 * in_flight
    assert verdict.slowest_s <= MAX_LATENCY_S + scenario.extra_s


async def test_a_planned_switch_with_two_masters(masters: Masters) -> None:
    """F23: for 2 s the old master still takes writes, and six connections break meanwhile: no call waits in vain."""
    scenario, (old, new) = masters.scenario, list(masters.servers)
    await follow(new, old)
    await masters.start()
    rounds = scenario.repeats(1, 20)
    async with scenario.paced_load() as calls:
        for _ in range(rounds):
            await wait_until_in_step(masters.clients[masters.servers.index(old)])
            await asyncio.sleep(1.2)  # gateways and workers read the replication id of their master each second
            await promote(new)
            await masters.switch.route(new)
            for _ in range(BROKEN):
                await masters.switch.cut(1)
                await asyncio.sleep(2.0 / BROKEN)
            await follow(old, new)
            old, new = new, old
    resubmitted = await scenario.resubmitted()
    verdict = scenario.judge("F23 planned switch, two masters for 2 s", calls, rounds=rounds, resubmitted=resubmitted)
    assert all_correct(verdict)
    assert resubmitted <= rounds * max_in_flight(calls)
    assert verdict.slowest_s <= MAX_LATENCY_S + scenario.extra_s


async def test_a_master_hangs_behind_an_address(masters: Masters) -> None:
    """F23: connections to the old master stay open and unanswered, as those to a lost node; new ones find the other."""
    scenario, (old, new) = masters.scenario, masters.servers
    await follow(new, old)
    await masters.start()
    async with scenario.paced_load() as calls:
        with stopped(old):
            await asyncio.sleep(PROMOTED_AFTER_S)
            await promote(new)
            await masters.switch.route(new)
            await asyncio.sleep(HANG_S)
    resubmitted = await scenario.resubmitted()
    verdict = scenario.judge("F23 the master hangs, the address cuts nothing", calls, resubmitted=resubmitted)
    assert all_correct(verdict)
    assert resubmitted <= max_in_flight(calls)
    assert verdict.slowest_s <= MAX_LATENCY_S + scenario.extra_s


async def wait_until_in_step(master: redis.asyncio.Redis) -> None:
    """Waits until the replica of a master has its data."""

    async def in_step() -> bool:
        info: Any = await master.info("replication")
        return bool(info["connected_slaves"] == 1 and info["slave0"]["state"] == "online")

    await wait_until(in_step, "the replica is in step", timeout_s=20)


async def test_an_unrelated_master_is_not_used(masters: Masters) -> None:
    """F23: connections that break meet an empty Redis for 2 s: nothing is written there, and all calls succeed."""
    scenario, (home, stranger) = masters.scenario, masters.servers
    await masters.start()
    rounds = scenario.repeats(1, 10)
    async with scenario.paced_load() as calls:
        for _ in range(rounds):
            await masters.switch.route(stranger)
            await masters.switch.cut(BROKEN)
            await asyncio.sleep(2.0)
            await masters.switch.route(home)
            await asyncio.sleep(1.0)
    written = await masters.clients[1].keys("*")
    resubmitted = await scenario.resubmitted()
    figures = {"rounds": rounds, "keys_at_the_other": len(written), "resubmitted": resubmitted}
    verdict = scenario.judge("F23 connections meet an unrelated Redis", calls, **figures)
    assert all_correct(verdict)
    assert written == []
    assert resubmitted <= BROKEN * rounds, "each may have carried a reply"
    assert verdict.slowest_s <= MAX_LATENCY_S + scenario.extra_s
