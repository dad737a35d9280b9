"""What holds a job when it is accepted: Redis' memory, its append-only file, or its replicas."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
import redis

from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of, null_vector
from tests.integration.gateway.job_client import JobClient
from tests.processes import Processes
from tests.servers import Server, parse_version, stopped
from tests.users import REPLICA, password_of, users_are_on
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]


def has_waitaof(server: Server) -> bool:
    """Whether a Redis has the command WAITAOF (7.2)."""
    with redis.Redis.from_url(server.url, protocol=2) as raw:
        return parse_version(str(raw.info("server")["redis_version"])) >= (7, 2)


ALWAYS, EVERYSEC = ("--appendonly", "yes", "--appendfsync", "always"), ("--appendonly", "yes")


@pytest.mark.parametrize(
    ("options", "level"), [((), "aof"), (ALWAYS, "aof"), (EVERYSEC, "aof"), ((), "replicas")], ids=str
)
async def test_a_job_is_accepted_once_it_is_durable(
    cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...], level: str
) -> None:
    """A job is accepted only once it is as durable as configured: without a file or a replica it is refused."""
    with Server(options=options) as server:
        # Without WAITAOF a gateway reads Redis' settings, which its user is not allowed to do.
        durable = options in (ALWAYS, EVERYSEC) and has_waitaof(server)
        durable = durable or (options == ALWAYS and not users_are_on())
        async with Processes(tmp_path_factory.mktemp("durable")) as processes:
            separate = GatewayCluster(processes, server.url, cluster.queue)
            gateway = await separate.start_gateway(job_durability=level, job_durable_s=20 if durable else 3)
            answer = await asyncio.to_thread(JobClient(gateway).post, {"text": "a"})
            if durable:
                new_job = JobClient(gateway).job_of(answer)
                assert JobClient(gateway).get(new_job["status_url"]).json()["status"] == "queued"
            else:
                assert (answer.status_code, error_of(answer)["code"]) == (503, "not_durable")
            with redis.Redis.from_url(server.url, protocol=2) as raw:
                assert raw.xlen(separate.keys.lanes[1]) == int(durable)
                if users_are_on():
                    raw.acl_log_reset()


@asynccontextmanager
async def replicated_redis(num_replicas: int) -> AsyncIterator[tuple[Server, list[Server]]]:
    """A Redis with replicas that are synchronized, so that they receive all writes from now on."""
    with ExitStack() as servers:
        primary = servers.enter_context(Server())
        follow = ["--replicaof", "127.0.0.1", str(primary.port)]
        if users_are_on():
            follow += ["--masteruser", REPLICA, "--masterauth", password_of(REPLICA)]
        replicas = [servers.enter_context(Server(options=follow)) for _ in range(num_replicas)]
        raw = servers.enter_context(redis.Redis.from_url(primary.url, protocol=2))

        def are_online() -> bool:
            info = raw.info("replication")
            return [info.get(f"slave{n}", {}).get("state") for n in range(num_replicas)] == ["online"] * num_replicas

        await wait_until(are_online, "the replicas are synchronized", timeout_s=20)
        yield primary, replicas


async def test_a_job_waits_for_a_replica(cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Concurrent jobs share a WAIT for the replica; a job that it lacks is refused, also after a reconnect."""
    async with (
        replicated_redis(1) as (server, (replica,)),
        Processes(tmp_path_factory.mktemp("replica")) as processes,
    ):
        separate = GatewayCluster(processes, server.url, cluster.queue)
        gateway = await separate.start_gateway(job_durability="replicas", job_durable_s=4)
        client = JobClient(gateway)
        with redis.Redis.from_url(server.url, protocol=2) as raw:
            with stopped(replica):
                posts = [asyncio.create_task(asyncio.to_thread(client.post, {"text": f"{i}"})) for i in range(5)]
                await wait_until(lambda: raw.zcard(separate.keys.all_jobs) == len(posts), "all jobs are created")
                assert [each.result().text for each in posts if each.done()] == []
            assert [answer.status_code for answer in await asyncio.gather(*posts)] == [202] * len(posts)
            assert raw.info("commandstats")["cmdstat_wait"]["calls"] <= 2
            with stopped(replica):
                for _ in range(2):  # the second finds that the job exists
                    raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                    late = await asyncio.to_thread(client.post, {"text": "late"}, idempotency_key="late")
                    assert (late.status_code, error_of(late)["code"]) == (503, "not_durable")
        new_job = client.job_of(await asyncio.to_thread(client.post, {"text": "late"}, idempotency_key="late"))
        assert client.get(new_job["status_url"]).json()["n"] == 1


@pytest.mark.parametrize(
    ("num_replicas", "num_stopped", "required", "accepted"),
    [(2, 1, 0, True), (2, 1, 2, False), (2, 0, 2, True), (3, 2, 0, False), (3, 2, 1, True)],
)
async def test_a_job_waits_for_as_many_replicas_as_set(
    cluster: GatewayCluster,
    tmp_path_factory: pytest.TempPathFactory,
    num_replicas: int,
    num_stopped: int,
    required: int,
    accepted: bool,
) -> None:
    """By default for all that are connected but one, so that one which hangs delays no job."""
    async with (
        replicated_redis(num_replicas) as (server, replicas),
        Processes(tmp_path_factory.mktemp("replicas")) as processes,
    ):
        separate = GatewayCluster(processes, server.url, cluster.queue)
        durable_s = 20 if accepted else 1
        gateway = await separate.start_gateway(
            job_durability="replicas", job_durable_s=durable_s, job_replicas=required
        )
        with ExitStack() as stops:
            for replica in replicas[:num_stopped]:
                stops.enter_context(stopped(replica))
            answer = await asyncio.to_thread(JobClient(gateway).post, {"text": "a"})
        if accepted:
            assert answer.status_code == 202
        else:
            assert (answer.status_code, error_of(answer)["code"]) == (503, "not_durable")
            assert f"of {required or num_replicas - 1} that must" in error_of(answer)["message"]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_job_survives_a_killed_redis(
    cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory, fsync: str
) -> None:
    """With an append-only file, finished results stay, the rest of the job runs, and each input is counted once."""
    texts = [f"text {i}" for i in range(2_000)]
    with Server(options=("--appendonly", "yes", "--appendfsync", fsync)) as server:
        async with Processes(tmp_path_factory.mktemp("killed")) as processes:
            separate = GatewayCluster(processes, server.url, cluster.queue)
            gateway, _ = await asyncio.gather(
                separate.start_gateway(),
                separate.start_worker("simulated:base_ms=20,item_ms=0", reclaim_idle_ms=500, renew_ms=100),
            )
            client = JobClient(gateway)
            new_job = client.job_of(client.post({"texts": texts}))

            def status() -> dict[str, Any]:
                job: dict[str, Any] = client.get(new_job["status_url"]).json()
                return job

            for done in (200, 900):
                await wait_until(lambda done=done: status()["done"] > done, "the job advances")  # type: ignore[misc]
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.sleep(0.2)
                server.start()
                await wait_until(lambda: client.get(new_job["status_url"]).status_code == 200, "Redis is back")
            job = client.wait_until_ended(new_job)
            assert (job["status"], job["done"], job["failed"]) == ("done", 2_000, 0)
            assert client.vectors(new_job) == list(map(null_vector, texts))
