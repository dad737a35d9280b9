"""A gateway and a worker on one server of a Redis Cluster, whose slots are elsewhere, or move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
import redis
from typer.testing import CliRunner

from api.queues import DISCOVERY_INTERVAL_S
from redbatch.commands import app
from shared.keys import QUEUES, Keys
from shared.process.settings import EXIT_CONFIGURATION
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    has_vectors,
    log_lines,
    missing_of,
)
from tests.processes import Processes, Program
from tests.redis_cluster import RedisCluster, slot_of
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

API_KEYS = "rb:keys"


@pytest_asyncio.fixture
async def on_cluster(
    servers: RedisCluster, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """A cluster whose processes connect to the first server."""
    async with Processes(tmp_path_factory.mktemp("on_cluster")) as processes:
        yield GatewayCluster(processes, servers.urls[0], queue_name)


def slot_of_queue(cluster: GatewayCluster) -> int:
    """Returns the slot of all keys of the queue."""
    return slot_of(cluster.keys.backlog)


async def start(cluster: GatewayCluster, **settings: object) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and a worker, and waits until requests can be answered."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(**settings), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway, worker


async def check_away(gateway: GatewayProcess, worker: Program) -> None:
    """Checks that both report that Redis is away, that a request gets a 503, and that no client sees more."""
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway reports that Redis is away")
    await wait_until(lambda: gateway.metric("redbatch_redis_up") == 0, "its metrics say so", poll_s=0.05)
    await wait_until(lambda: "redis" in missing_of(worker), "the worker reports that Redis is away", poll_s=0.05)
    answer = await asyncio.to_thread(gateway.embed, {"text": "a"}, x_timeout_ms="500")
    assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    assert "127.0.0.1" not in answer.text, "clients see the address of Redis"
    assert worker.running


def check_logs(*programs: Program) -> None:
    """Checks that no program has logged a stack trace, or an error other than that of a request."""
    for program in programs:
        errors = [line for line in log_lines(program) if line["level"] == "error" or "exception" in line]
        assert {line["msg"] for line in errors} <= {"request failed"}
        assert not any("exception" in line for line in errors)


async def check_serves(gateway: GatewayProcess) -> None:
    """Waits until the gateway is ready, and checks an answer."""
    await wait_until(lambda: gateway.missing() == [], "Redis is back", poll_s=0.05)
    assert has_vectors(await asyncio.to_thread(gateway.embed, {"texts": ["b"]}), ["b"])


async def test_a_wrong_server_from_the_start(servers: RedisCluster, on_cluster: GatewayCluster) -> None:
    """Both processes start and wait; they serve as soon as the slot of the queue comes to their server."""
    on_cluster.redis_url = servers.urls[1]
    gateway = await on_cluster.start_gateway()
    worker = await on_cluster.processes.start("worker", "gpuworker", on_cluster.env(model="null"))
    await check_away(gateway, worker)
    await asyncio.to_thread(servers.move, slot_of_queue(on_cluster), 0, 1)
    await check_serves(gateway)
    await wait_until(lambda: missing_of(worker) == [], "the worker is ready", poll_s=0.05)
    check_logs(gateway.program, worker)
    warning, *_ = gateway.program.log_records("Redis is out of reach")
    assert "MOVED" in warning["reason"]


async def test_a_slot_that_moves_away_and_back(
    servers: RedisCluster, on_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """A request that waits meanwhile is answered."""
    gateway, worker = await start(on_cluster, redis_grace_s=60)
    slot = slot_of_queue(on_cluster)
    await asyncio.to_thread(servers.move, slot, 0, 1)
    patient = asyncio.create_task(gateway.send(client, "b", x_timeout_ms="60000"))
    await check_away(gateway, worker)
    await asyncio.to_thread(servers.move, slot, 1, 0)
    assert (await patient).status_code == 200
    await check_serves(gateway)
    check_logs(gateway.program, worker)


async def test_a_slot_that_migrates(
    servers: RedisCluster, on_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """While Redis answers ASK (or TRYAGAIN, from 7.0 on), requests wait; they are answered if the slot stays."""
    gateway, worker = await start(on_cluster, redis_grace_s=60)
    slot = slot_of_queue(on_cluster)
    await asyncio.to_thread(servers.begin_move, slot, 0, 1)
    patient = asyncio.create_task(gateway.send(client, "b", x_timeout_ms="60000"))
    await check_away(gateway, worker)
    reasons = [line["reason"] for line in gateway.program.log_records("Redis is out of reach")]
    assert any("ASK" in reason or "TRYAGAIN" in reason for reason in reasons)
    await asyncio.to_thread(servers.cancel_move, slot, 0, 1)
    assert (await patient).status_code == 200
    await check_serves(gateway)
    check_logs(gateway.program, worker)


async def test_the_list_of_queues_on_another_server(servers: RedisCluster, on_cluster: GatewayCluster) -> None:
    """Each process warns once, and all else works; so does a command that names the queue."""
    await asyncio.to_thread(servers.move, slot_of(QUEUES), 0, 1)
    gateway, worker = await start(on_cluster, all_queues=True)
    await asyncio.sleep(2 * DISCOVERY_INTERVAL_S)
    await check_serves(gateway)
    assert missing_of(worker) == []
    assert len(gateway.program.log_records("the list of queues cannot be read: others are not found")) == 1
    assert len(worker.log_records("Redis does not let this worker announce the queue")) == 1
    check_logs(gateway.program, worker)
    command = ("queue", "--queue", on_cluster.queue)
    assert await asyncio.to_thread(run_redbatch, servers.urls[0], *command) == (0, "")


async def test_an_announced_queue_on_another_server(servers: RedisCluster, on_cluster: GatewayCluster) -> None:
    """A gateway serves the others, and says once that it cannot serve this one."""
    elsewhere = Keys(f"{on_cluster.queue}-elsewhere")
    await asyncio.to_thread(servers.move, slot_of(elsewhere.backlog), 0, 1)
    with redis.Redis.from_url(servers.urls[0], protocol=2) as raw:
        raw.zadd(QUEUES, {elsewhere.queue: time.time() * 1000})
    gateway, _ = await start(on_cluster, all_queues=True)
    await wait_until(lambda: bool(gateway.program.log_records("cannot serve queue")), "it says so")
    await asyncio.sleep(2 * DISCOVERY_INTERVAL_S)
    await check_serves(gateway)
    (warning,) = gateway.program.log_records("cannot serve queue")
    assert (warning["queue"], "MOVED" in warning["reason"]) == (elsewhere.queue, True)
    check_logs(gateway.program)


async def test_api_keys_on_another_server(servers: RedisCluster, on_cluster: GatewayCluster) -> None:
    """A gateway that requires them says in one line why it does not start."""
    await asyncio.to_thread(servers.move, slot_of(API_KEYS), 0, 1)
    program = await on_cluster.processes.start("gateway", "api", on_cluster.env(auth="on"))
    assert await program.wait_until_ended() == EXIT_CONFIGURATION
    line = program.output.splitlines()[-1]
    assert line.startswith("redbatch: This gateway requires API keys, but")
    assert "MOVED" in line
    assert "Traceback" not in program.output


@pytest.mark.parametrize(
    "command", ["queue", "queue --queue any", "jobs list", "dead list", "leases", "keys list", "keys create"]
)
def test_a_command_on_a_wrong_server(servers: RedisCluster, command: str) -> None:
    """It says in one line what is wrong, and fails."""
    code, line = run_redbatch(servers.urls[1], *command.split())
    assert (code, line.count("\n")) == (1, 0)
    assert line.startswith(f"redbatch: {servers.urls[1]}: ")
    assert "MOVED" in line


def run_redbatch(url: str, *arguments: str) -> tuple[int, str]:
    """Runs `redbatch` on a Redis; returns the exit code and the error line. Raises what the command raises."""
    result = CliRunner().invoke(app, [*arguments, "--redis-url", url], catch_exceptions=False)
    return result.exit_code, result.stderr.strip()
