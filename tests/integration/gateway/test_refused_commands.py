"""Redis as some services run it: commands that Redbatch can do without are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from api.dispatch.monitor_metrics import UNKNOWN_MEMORY
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of, log_lines
from tests.integration.gateway.job_client import JobClient
from tests.processes import Processes, Program
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

USER = "limited"
REFUSED = "Redis refuses a command"
NO_IDENTITY = "Redis does not say which server it is: a change of its master may be noticed late. Allow INFO"
OF_THE_BREAK = ("cannot claim", "cannot commit", "no heartbeat", "Redis is out of reach")
"""What processes warn of because their connections break: of calls that were under way."""


@contextmanager
def limited_redis(*rules: str, options: Sequence[str] = ()) -> Iterator[Server]:
    """Yields a Redis with a user who may do everything but what the rules take away."""
    with Server(options=options) as server, redis.Redis.from_url(server.url, protocol=2) as raw:
        raw.execute_command("ACL", "SETUSER", USER, "on", ">p", "~*", "&*", "+@all", *rules)
        yield server
        raw.acl_log_reset()


def url_of(server: Server) -> str:
    """Returns the URL for that user."""
    return f"redis://{USER}:p@127.0.0.1:{server.port}/0"


def warnings_of(program: Program) -> list[str]:
    """Returns what a process has warned of, sorted: a message, or a command that is refused."""
    lines = [line for line in log_lines(program) if line["level"] in ("warning", "error")]
    messages = [line["command"] if line["msg"] == REFUSED else line["msg"] for line in lines]
    return sorted(each for each in messages if each not in OF_THE_BREAK)


async def serve_and_break(server: Server, gateway_cluster: GatewayCluster, client: httpx.AsyncClient) -> list[Program]:
    """Serves requests whose connections break, and jobs; stops the worker; returns gateway and worker."""
    gateway, worker = await asyncio.gather(
        gateway_cluster.start_gateway(), gateway_cluster.start_worker("simulated:base_ms=500,item_ms=0")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    answers = [asyncio.create_task(gateway.send(client, f"{number}")) for number in range(5)]
    await asyncio.sleep(0.2)
    with redis.Redis.from_url(server.url, protocol=2) as raw:
        raw.execute_command("CLIENT", "KILL", "USER", USER)
    assert {answer.status_code for answer in await asyncio.gather(*answers)} == {200}
    jobs = JobClient(gateway)
    job = jobs.job_of(await asyncio.to_thread(jobs.post, {"text": "a"}))
    await wait_until(lambda: jobs.get(job["status_url"]).json()["status"] == "done", "the job is done")
    await worker.stop()
    return [gateway.program, worker]


async def test_without_client_commands_and_info(tmp_path: Path, queue_name: str, client: httpx.AsyncClient) -> None:
    """All is served, and each loss is one warning."""
    with limited_redis("-info", "-client", "+client|setname") as server:
        async with Processes(tmp_path) as processes:
            cluster = GatewayCluster(processes, url_of(server), queue_name)
            gateway, worker = await serve_and_break(server, cluster, client)
    assert warnings_of(gateway) == ["CLIENT INFO", UNKNOWN_MEMORY, NO_IDENTITY]
    assert warnings_of(worker) == ["CLIENT INFO", NO_IDENTITY]


async def test_without_client_kill_and_unblock(tmp_path: Path, queue_name: str, client: httpx.AsyncClient) -> None:
    """The same, where connections are known by their id."""
    with limited_redis("-client", "+client|setname", "+client|info") as server:
        async with Processes(tmp_path) as processes:
            cluster = GatewayCluster(processes, url_of(server), queue_name)
            gateway, worker = await serve_and_break(server, cluster, client)
    assert warnings_of(gateway) == ["CLIENT KILL"]
    assert warnings_of(worker) == ["CLIENT KILL", "CLIENT UNBLOCK"]


@pytest.mark.parametrize(
    ("level", "rules", "options", "words"),
    [
        ("replicas", ("-wait",), (), "refuses WAIT"),
        ("replicas", (), ("--rename-command", "WAIT", ""), "refuses WAIT"),
        ("aof", ("-@blocking", "+blpop", "-config", "-info"), ("--appendonly", "yes"), "cannot confirm writes"),
        ("aof", ("-@blocking", "+blpop"), ("--rename-command", "CONFIG", "", "--appendonly", "yes"), "cannot confirm"),
    ],
)
async def test_a_job_is_refused_if_its_durability_cannot_be_confirmed(
    tmp_path: Path, queue_name: str, level: str, rules: tuple[str, ...], options: tuple[str, ...], words: str
) -> None:
    """The answer says what to change; it is no error of Redbatch, and not that Redis is away."""
    with limited_redis(*rules, options=options) as server:
        async with Processes(tmp_path) as processes:
            cluster = GatewayCluster(processes, url_of(server), queue_name)
            gateway = await cluster.start_gateway(job_durability=level, job_durable_s=3)
            answer = await asyncio.to_thread(JobClient(gateway).post, {"text": "a"})
            assert (answer.status_code, error_of(answer)["code"]) == (503, "not_durable")
            assert words in error_of(answer)["message"]
