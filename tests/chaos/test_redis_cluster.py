"""A Redis Cluster moves the slot of the queue to another server, and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import redis.asyncio

from tests.chaos.history import OK
from tests.chaos.scenario import Figures, Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.redis_cluster import RedisCluster, slot_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

AWAY_S = 1.0
SHORT_GRACE_S = 0.5
REFUSED = "503 redis_unreachable"


@pytest.fixture
def servers() -> Iterator[RedisCluster]:
    """Yields two servers, of which the first has all slots."""
    with RedisCluster() as servers:
        yield servers


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


async def move_away_and_back(scenario: Scenario, servers: RedisCluster, away_s: float) -> None:
    """Moves the slot of the queue; meanwhile the gateways must report that Redis is away."""
    slot = slot_of(scenario.cluster.keys.backlog)
    await asyncio.to_thread(servers.move, slot, 0, 1)
    for gateway in scenario.gateways:
        await wait_until(lambda gateway=gateway: gateway.missing() == ["redis"], "a gateway says that Redis is away")  # type: ignore[misc]
    await asyncio.sleep(away_s)
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


async def test_a_slot_is_away_for_longer_than_the_grace(on_cluster: Scenario, servers: RedisCluster) -> None:
    """F24: calls get a 503 once the grace is over, and no other error; all is well when the slot is back."""
    scenario = on_cluster
    scenario.cluster.environment["REDBATCH_REDIS_GRACE_S"] = str(SHORT_GRACE_S)
    await scenario.start()
    async with scenario.load(timeout_s=5.0) as calls:
        await move_away_and_back(scenario, servers, 3 * SHORT_GRACE_S)
        back_at = len(calls)
        await wait_until(lambda: len(calls) > back_at + 100, "calls are answered again", timeout_s=20)
    verdict = scenario.judge("F24 the slot of the queue is away for longer than the grace", calls)
    assert (verdict.misrouted, verdict.late, set(verdict.others)) == (0, 0, {REFUSED})
    assert {call.outcome for call in calls[-50:]} == {OK}
