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
from typing import Any

import httpx
import pytest
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
MAX_IN_FLIGHT_S = 0.5
"""An answer comes at most this long after Redis had the job."""


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
    """Returns the jobs that a gateway does not know."""
    async with plain_http.client() as client:
        answers = [await client.get(f"{gateway.url}{each.status_url}") for each in accepted]
    assert {answer.status_code for answer in answers} <= {200, 404}
    return [each for each, answer in zip(accepted, answers, strict=True) if answer.status_code == 404]


@asynccontextmanager
async def running(*servers: Server) -> AsyncIterator[None]:
    """Runs servers until the end of the block."""
    async with AsyncExitStack() as stack:
        for server in servers:
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        yield


async def wait_until_serving(*gateways: GatewayProcess) -> None:
    """Waits until gateways answer again."""
    for gateway in gateways:
        await wait_until(lambda gateway=gateway: not gateway.missing(), "the gateway serves", timeout_s=20)  # type: ignore[misc]


@pytest.mark.parametrize("durability", ["none", "aof", "replicas"])
async def test_a_failover_to_a_replica_that_lags(
    durability: str,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """F26: the replica has received nothing for a second when the master dies: only jobs of that second are lost.

    With `replicas` none are, as none are accepted meanwhile.
    """
    if durability == "aof" and users_are_on():
        pytest.skip("a gateway with its Redis user cannot know that each write is on the disk")
    on_disk = ["--appendonly", "yes", "--appendfsync", "always"] if durability == "aof" else []
    old, new = Server(options=on_disk), Server()
    async with (
        running(old, new),
        Switch(old) as replication,
        Switch(old) as address,
        Processes(tmp_path_factory.mktemp("failover")) as processes,
        redis.asyncio.Redis.from_url(new.url, protocol=2) as raw,
    ):
        await follow(new, replication)
        cluster = GatewayCluster(processes, address.url, queue_name)
        gateway = await cluster.start_gateway(job_durability=durability, job_durable_s=1)
        await cluster.start_worker()
        await wait_until_serving(gateway)
        async with posting(gateway) as accepted:
            await asyncio.sleep(2.0 if thorough else 1.0)
            replication.hold()
            held_at = time.monotonic()
            await asyncio.sleep(LAG_S)
            os.kill(old.pid, signal.SIGKILL)
        replication.lose()
        await promote(new)
        await address.route(new)
        await wait_until_serving(gateway)
        lost = await lost_of(gateway, accepted)
        scenario = Scenario(cluster, raw, thorough, rows)
        num_late = sum(each.at > held_at + MAX_IN_FLIGHT_S for each in accepted)
        scenario.note(
            f"F26 job_durability={durability}, replica 1 s behind", accepted=len(accepted), jobs_lost=len(lost)
        )
        assert len(accepted) > 10
        if durability == "replicas":
            assert (len(lost), num_late) == (0, 0)
        else:
            assert len(lost) > 0, "the replica had everything: this scene shows nothing"
            assert min(each.at for each in lost) >= held_at, "a job was lost that the replica had"


@pytest.mark.parametrize("job_replicas", [1, 2])
async def test_a_split(
    job_replicas: int,
    queue_name: str,
    thorough: bool,
    rows: list[Figures],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """F26: the old master keeps one of its two replicas while the other is promoted, and later drops what it accepted.

    With `job_replicas` 2 it accepts nothing meanwhile.
    """
    old, kept, new = Server(), Server(), Server()
    async with (
        running(old, kept, new),
        Switch(old) as address,
        Processes(tmp_path_factory.mktemp("split")) as processes,
        redis.asyncio.Redis.from_url(new.url, protocol=2) as raw,
    ):
        await follow(kept, old)
        await follow(new, old)
        cluster = GatewayCluster(processes, address.url, queue_name)
        settings: dict[str, Any] = {"job_durability": "replicas", "job_durable_s": 1, "job_replicas": job_replicas}
        gateway = await cluster.start_gateway(**settings)
        await cluster.start_worker()
        await wait_until_serving(gateway)
        async with posting(gateway) as before:
            await asyncio.sleep(1.0)
        await promote(new)
        split_at = time.monotonic()
        async with posting(gateway) as accepted:
            await asyncio.sleep(SPLIT_S)
        await address.route(new)
        await address.cut()
        await follow(old, new)
        await wait_until_serving(gateway)
        lost = await lost_of(gateway, accepted)
        scenario = Scenario(cluster, raw, thorough, rows)
        fault = f"F26 split, job_durability=replicas, job_replicas={job_replicas}"
        scenario.note(fault, accepted=len(accepted), jobs_lost=len(lost))
        assert await lost_of(gateway, before) == []
        if job_replicas == 1:
            assert len(lost) == len(accepted) > 0, "what one replica of a minority has is no safety"
        else:
            assert [each for each in accepted if each.at > split_at + MAX_IN_FLIGHT_S] == lost == []
