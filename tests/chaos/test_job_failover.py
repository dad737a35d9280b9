"""Jobs that were accepted before a failover, or in a split: which of them are lost, by what `job_durability` asks for.

docs/jobs.md says what may be lost. Clients that get a 202 may rely on the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio
import redis.asyncio

from tests import plain_http
from tests.chaos.scenario import Figures, Scenario
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.processes import Processes
from tests.servers import Server
from tests.several_redis import follow, promote
from tests.switch import Switch
from tests.users import users_are_on
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long]

CLIENTS = 4
LAG_S = 1.0
SPLIT_S = 3.0
MAX_AWAY_S = 20.0
MAX_IN_FLIGHT_S = 0.5
"""An answer comes at most this long after Redis had the job."""

SPLITS: list[dict[str, str | int]] = [
    {"job_durability": "none"},
    {"job_durability": "aof"},
    *({"job_durability": "replicas", "job_replicas": number} for number in (0, 1, 2)),
]
"""Settings of gateways; `job_replicas` 0 is the default."""


@dataclass(frozen=True)
class Accepted:
    """A job, and when its 202 came (s, monotonic)."""

    status_url: str
    at: float


@asynccontextmanager
async def posting(gateway: GatewayProcess) -> AsyncIterator[list[Accepted]]:
    """Posts jobs of one text until the end of the block, and yields those that are accepted; others are refused."""
    accepted: list[Accepted] = []
    numbers = itertools.count()

    async def post(client: httpx.AsyncClient) -> None:
        while True:
            answer = await client.post(f"{gateway.url}/jobs", json={"texts": [f"job {next(numbers)}"]}, timeout=30)
            if answer.status_code == 202:
                accepted.append(Accepted(answer.json()["status_url"], time.monotonic()))
            else:
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.02)

    async with plain_http.client() as client:
        tasks = [asyncio.create_task(post(client)) for _ in range(CLIENTS)]
        try:
            yield accepted
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in results), results


async def lost_of(gateway: GatewayProcess, accepted: Sequence[Accepted]) -> list[Accepted]:
    """Returns the jobs that a gateway does not know, once its Redis answers."""

    async def status_of(client: httpx.AsyncClient, job: Accepted) -> int:
        until = time.monotonic() + MAX_AWAY_S
        while (status := (await client.get(f"{gateway.url}{job.status_url}")).status_code) == 503:
            assert time.monotonic() < until, "Redis stays away"
            await asyncio.sleep(0.1)
        return status

    async with plain_http.client() as client:
        statuses = [await status_of(client, each) for each in accepted]
    assert set(statuses) <= {200, 404}
    return [each for each, status in zip(accepted, statuses, strict=True) if status == 404]


@dataclass
class Replicated:
    """A gateway and a worker on a master with replicas, and an address that leads to one of the servers."""

    old: Server
    replicas: Sequence[Server]
    replication: Switch
    """Over it, the last replica follows the master."""

    address: Switch
    gateway: GatewayProcess
    scenario: Scenario

    @property
    def new(self) -> Server:
        """The replica that is promoted."""
        return self.replicas[-1]

    def note(self, fault: str, accepted: Sequence[Accepted], lost: Sequence[Accepted], ended_at: float) -> None:
        """Records how many jobs are lost, and how long before the end of the old master the first was accepted."""
        window_s = max((ended_at - each.at for each in lost), default=0.0)
        figures = {"jobs_lost": len(lost), "loss_window_s": round(window_s, 2)}
        self.scenario.note(f"F26 {fault}", accepted=len(accepted), **figures)

    async def move(self) -> None:
        """Leads to the new master from now on."""
        await self.address.route(self.new)
        await self.address.cut()


@pytest_asyncio.fixture
async def replicated(
    request: pytest.FixtureRequest,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Replicated]:
    """Yields a gateway with settings, on a master with a number of replicas; a pair of both is the parameter."""
    settings, num_replicas = request.param
    if settings["job_durability"] == "aof" and users_are_on():
        pytest.skip("a gateway with its Redis user cannot know that each write is on the disk")
    on_disk = ["--appendonly", "yes", "--appendfsync", "always"] if settings["job_durability"] == "aof" else []
    old, replicas = Server(options=on_disk), [Server() for _ in range(num_replicas)]
    async with AsyncExitStack() as stack:
        for server in (old, *replicas):
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        replication = await stack.enter_async_context(Switch(old))
        for server in replicas:
            await follow(server, replication if server is replicas[-1] else old)
        address = await stack.enter_async_context(Switch(old))
        processes = await stack.enter_async_context(Processes(tmp_path_factory.mktemp("replicated")))
        raw = await stack.enter_async_context(redis.asyncio.Redis.from_url(replicas[-1].url, protocol=2))
        cluster = GatewayCluster(processes, address.url, queue_name)
        gateway = await cluster.start_gateway(**settings, job_durable_s=1)
        await cluster.start_worker()
        scenario = Scenario(cluster, raw, thorough, rows)
        await wait_until(lambda: not gateway.missing(), "the gateway serves", timeout_s=MAX_AWAY_S)
        yield Replicated(old, replicas, replication, address, gateway, scenario)


@pytest.mark.parametrize(
    "replicated", [({"job_durability": each}, 1) for each in ("none", "aof", "replicas")], indirect=True, ids=str
)
async def test_a_failover_to_a_replica_that_lags(replicated: Replicated, request: pytest.FixtureRequest) -> None:
    """F26: the replica has received nothing for a second when the master dies: only jobs of that second are lost.

    With `replicas` none are, as none are accepted meanwhile.
    """
    durability = request.node.callspec.params["replicated"][0]["job_durability"]
    async with posting(replicated.gateway) as accepted:
        await asyncio.sleep(2.0)
        replicated.replication.hold()
        held_at = time.monotonic()
        await asyncio.sleep(LAG_S)
        os.kill(replicated.old.pid, signal.SIGKILL)
        killed_at = time.monotonic()
    replicated.replication.lose()
    await promote(replicated.new)
    await replicated.move()
    lost = await lost_of(replicated.gateway, accepted)
    fault = f"failover, job_durability={durability}, replica 1 s behind"
    replicated.note(fault, accepted, lost, killed_at)
    assert len(accepted) > 10
    if durability == "replicas":
        assert [each for each in accepted if each.at > held_at + MAX_IN_FLIGHT_S] == lost == []
    else:
        assert len(lost) > 0, "the replica had everything: this scene shows nothing"
        assert min(each.at for each in lost) >= held_at, "a job was lost that the replica had"


@pytest.mark.parametrize("replicated", [(each, 2) for each in SPLITS], indirect=True, ids=str)
async def test_a_split(replicated: Replicated, request: pytest.FixtureRequest) -> None:
    """F26: the old master keeps one of its two replicas while the other is promoted, and later drops what it accepted.

    With `job_replicas` 2 it accepts nothing meanwhile. By default it accepts what its one replica has.
    """
    settings = request.node.callspec.params["replicated"][0]
    async with posting(replicated.gateway) as before:
        await asyncio.sleep(1.0)
    await promote(replicated.new)
    split_at = time.monotonic()
    async with posting(replicated.gateway) as accepted:
        await asyncio.sleep(SPLIT_S)
    healed_at = time.monotonic()
    await replicated.move()
    await follow(replicated.old, replicated.new)
    lost = await lost_of(replicated.gateway, accepted)
    names = ", ".join(f"{name}={each}" for name, each in settings.items())
    replicated.note(f"split, {names}", accepted, lost, healed_at)
    assert await lost_of(replicated.gateway, before) == []
    if settings.get("job_replicas") == 2:
        assert [each for each in accepted if each.at > split_at + MAX_IN_FLIGHT_S] == lost == []
    else:
        assert len(lost) == len(accepted) > 0, "what a minority has is no safety"
