"""A Redis Cluster moves the slot of the queue, or loses its server: with the URL of one server, and of the cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio
import redis.asyncio

from tests.chaos.history import OK, Call, max_in_flight
from tests.chaos.scenario import LONG_GRACE, LONG_GRACE_S, Figures, Scenario, all_correct
from tests.chaos.test_masters import MODEL
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of
from tests.processes import Processes
from tests.redis_cluster import RedisCluster, slot_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

AWAY_S = 1.0
SHORT_GRACE_S = 0.5
REPLICA = 3
"""Number of the replica of the first of three masters."""

MAX_FAILOVER_S = 5.0
MAX_FOLLOW_S = 1.5
"""Longest time from the promotion of a replica to the answers of all calls that waited for it. So an owner that dies
delays no call by more than MAX_FAILOVER_S, if Redis promotes within 3.5 s."""

VOTE_PAUSE_S = 4.5
"""Masters vote for no other replica of the same one within twice the time-out of nodes."""

REFUSED = "503 redis_unreachable"


@pytest_asyncio.fixture
async def on_cluster(
    servers: RedisCluster,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Scenario]:
    """Yields a cluster whose processes connect to the first server, which has the queue at the end."""
    url = servers.urls[0]
    async with (
        redis.asyncio.Redis.from_url(url, protocol=2) as raw,
        Processes(tmp_path_factory.mktemp("on_cluster")) as processes,
    ):
        scenario = Scenario(GatewayCluster(processes, url, queue_name), raw, thorough, rows)
        yield scenario
        assert not scenario.crash_logs()
        assert not any("Traceback" in each.program.output for each in scenario.gateways)
        await scenario.wait_until_drained()


async def move_away_and_back(
    scenario: Scenario, servers: RedisCluster, away_s: float, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Moves the slot of the queue; meanwhile the gateways must report that Redis is away."""
    slot = slot_of(scenario.cluster.keys.backlog)
    await asyncio.to_thread(servers.move, slot, 0, 1)
    for gateway in scenario.gateways:
        await wait_until(lambda gateway=gateway: gateway.missing() == ["redis"], "a gateway says that Redis is away")  # type: ignore[misc]
    await asyncio.sleep(away_s)
    if meanwhile is not None:
        await meanwhile()
    await asyncio.to_thread(servers.move, slot, 1, 0)
    await scenario.wait_until_worker_seen()


async def test_a_slot_moves_away_and_back(on_cluster: Scenario, servers: RedisCluster) -> None:
    """F24: each open call is answered by its deadline, and so are those that come meanwhile."""
    scenario = on_cluster
    await scenario.start()
    moves = scenario.repeats(2, 10)
    async with scenario.load() as calls:
        for _ in range(moves):
            await scenario.sleep_randomly(0.3, 0.6)
            await move_away_and_back(scenario, servers, AWAY_S)
    verdict = scenario.judge("F24 the slot of the queue moves away and back", calls, moves=2 * moves)
    assert all_correct(verdict)


@pytest.mark.long
async def test_a_slot_is_away_for_longer_than_the_grace(on_cluster: Scenario, servers: RedisCluster) -> None:
    """F24: calls get a 503 once the grace is over, and no other error; all is well when the slot is back."""
    scenario = on_cluster
    scenario.cluster.environment["REDBATCH_REDIS_GRACE_S"] = str(SHORT_GRACE_S)
    await scenario.start()

    async def check_refused() -> None:  # the calls of the load may all be older than the grace, and wait
        for gateway in scenario.gateways:
            answer = await asyncio.to_thread(gateway.embed, {"text": "late"}, x_timeout_ms="5000")
            assert f"{answer.status_code} {error_of(answer)['code']}" == REFUSED

    async with scenario.load(timeout_s=5.0) as calls:
        await move_away_and_back(scenario, servers, 3 * SHORT_GRACE_S, check_refused)
        back_at = len(calls)
        await wait_until(lambda: len(calls) > back_at + 100, "calls are answered again", timeout_s=20)
    verdict = scenario.judge("F24 the slot of the queue is away for longer than the grace", calls)
    assert (verdict.misrouted, verdict.late) == (0, 0)
    assert set(verdict.others) <= {REFUSED}
    assert {call.outcome for call in calls[-50:]} == {OK}


@dataclass
class Followed:
    """A cluster whose URL names servers of a Redis Cluster."""

    scenario: Scenario
    servers: RedisCluster

    @property
    def slot(self) -> int:
        """The slot of all keys of the queue."""
        return slot_of(self.scenario.cluster.keys.backlog)

    async def start(self) -> None:
        """Starts two gateways and two workers. No worker takes an entry from another: lost ones are found otherwise."""
        self.scenario.cluster.environment |= LONG_GRACE
        await self.scenario.start(model=MODEL, reclaim_idle_ms=60_000)

    async def judge(
        self, fault: str, calls: list[Call], rounds: int, max_s: float = MAX_FAILOVER_S, **figures: object
    ) -> None:
        """Records a verdict: all calls must be answered, none later than `max_s`."""
        resubmitted = await self.scenario.resubmitted()
        verdict = self.scenario.judge(f"F24 {fault}", calls, rounds=rounds, resubmitted=resubmitted, **figures)
        assert all_correct(verdict)
        assert resubmitted <= rounds * max_in_flight(calls)
        assert verdict.slowest_s <= max_s + self.scenario.extra_s


@pytest_asyncio.fixture
async def followed(
    queue_name: str, thorough: bool, rows: list[Figures], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Followed]:
    """Yields a cluster on three masters, of which the first has the queue, and a replica."""
    with RedisCluster(3, num_replicas=1) as servers:
        async with (
            redis.asyncio.Redis.from_url(servers.urls[0], protocol=2) as raw,
            Processes(tmp_path_factory.mktemp("followed")) as processes,
        ):
            scenario = Scenario(GatewayCluster(processes, servers.cluster_url, queue_name), raw, thorough, rows)
            yield Followed(scenario, servers)
            assert not scenario.crash_logs()
            assert not any("Traceback" in each.program.output for each in scenario.gateways)


async def test_processes_follow_a_slot(followed: Followed) -> None:
    """F24: the slot moves under load from master to master, and the processes go after it."""
    await followed.start()
    rounds = followed.scenario.repeats(2, 10)
    async with followed.scenario.paced_load() as calls:
        for number in range(rounds):
            await asyncio.to_thread(followed.servers.move, followed.slot, number % 2, 1 - number % 2)
            await asyncio.sleep(1.0)
    await followed.judge("the slot of the queue moves, and the URL is that of the cluster", calls, rounds)


async def test_processes_follow_planned_failovers(followed: Followed) -> None:
    """F24: the replica takes over, and the master follows it; and the reverse."""
    await followed.start()
    rounds = followed.scenario.repeats(2, 10)
    async with followed.scenario.paced_load() as calls:
        for number in range(rounds):
            replica = REPLICA if number % 2 == 0 else 0
            await asyncio.to_thread(followed.servers.wait_until_replicated)
            await asyncio.sleep(VOTE_PAUSE_S)
            await asyncio.to_thread(followed.servers.fail_over, replica)
            await asyncio.to_thread(followed.servers.wait_for_owner, followed.slot, replica)
    await followed.judge("planned failovers, and the URL is that of the cluster", calls, rounds)


async def test_processes_follow_when_the_owner_dies(followed: Followed) -> None:
    """F24: the other masters promote its replica, and the processes find it soon. An election may need a second try."""
    await followed.start()
    async with followed.scenario.paced_load() as calls:
        killed_at = time.monotonic()
        os.kill(followed.servers.servers[0].pid, signal.SIGKILL)
        await asyncio.to_thread(followed.servers.wait_for_owner, followed.slot, REPLICA)
        promoted_s = time.monotonic() - killed_at
        await asyncio.sleep(1.0)
    assert promoted_s < LONG_GRACE_S, "the gateways refuse calls from then on"
    fault = "the server of the queue dies, and the URL is that of the cluster"
    await followed.judge(fault, calls, 1, promoted_s + MAX_FOLLOW_S, promoted_s=round(promoted_s, 2))
