"""Redis answers with errors that no part of the cluster expects."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import redis.asyncio

from redbatch.up.local_redis import LocalRedis
from shared.job_ids import format_public_id
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    has_vectors,
    metric,
    missing_of,
    null_vector,
    vector_bytes,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

COUNTER = "redbatch_unexpected_redis_replies_total"
LINE = "Redis answers with an unexpected error"


async def replace_with_a_list(raw: redis.asyncio.Redis, key: str) -> None:
    """Replaces a key by one of a wrong type."""
    script: Any = raw.eval("redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'a')", 1, key)
    await script


async def status_of(gateway: GatewayProcess, client: httpx.AsyncClient) -> str:
    """Sends a request with little time; returns "ok", or the error's status and code."""
    answer = await gateway.send(client, "a", x_timeout_ms="500")
    return "ok" if answer.status_code == 200 else f"{answer.status_code} {error_of(answer)['code']}"


async def name_of_gateway(raw: redis.asyncio.Redis) -> str:
    """Returns the name of the only gateway, once it listens to its bell."""
    names: list[str] = []

    async def listens() -> bool:
        clients: Any = await raw.client_list()
        names[:] = [row["name"] for row in clients if row["name"].endswith(":reply:bell")]
        return bool(names)

    await wait_until(listens, "the gateway listens to its bell")
    return names[0].split(":")[1]


@pytest.mark.parametrize("which", ["epoch", "lane"])
async def test_requests_wait_until_redis_is_repaired(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient, which: str
) -> None:
    """A key of a wrong type: requests wait or get 503, /readyz says so, and the log has the error, not each time."""
    gateway, worker = await asyncio.gather(
        isolated_cluster.start_gateway(redis_grace_s=60), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    key = isolated_cluster.keys.epoch if which == "epoch" else isolated_cluster.keys.lanes[0]
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:
        await replace_with_a_list(raw, key)
        patient = asyncio.create_task(gateway.send(client, "patient", x_timeout_ms="60000"))
        assert await status_of(gateway, client) == "503 redis_unreachable"
        await wait_until(lambda: gateway.missing() == ["redis"], "the gateway reports that Redis is away")
        assert await status_of(gateway, client) == "503 redis_unreachable"
        assert worker.running
        assert metric(gateway.program, COUNTER) > 3
        await raw.delete(key)
    assert vector_bytes((await patient).json()["embedding"]) == null_vector("patient")
    await wait_until(lambda: gateway.missing() == [], "Redis is back")
    assert has_vectors(await asyncio.to_thread(gateway.embed, {"texts": ["b"]}), ["b"])
    first, *others = gateway.program.log_records(LINE)
    assert (first["level"], "WRONGTYPE" in first["reply"]) == ("error", True)
    assert len(others) <= 6, "the log is flooded"
    assert not gateway.program.log_records("Redis fails on a submit"), "the reply is in the log twice"
    assert '"exception"' not in gateway.program.output + worker.output


async def test_a_bell_that_cannot_be_popped_is_no_silence(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Replies are looked for without it; /readyz reports Redis until the bell works again."""
    gateway, worker = await asyncio.gather(
        isolated_cluster.start_gateway(reply_connections=2), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:
        bell = isolated_cluster.keys.bell(await name_of_gateway(raw))
        await raw.set(bell, "a string")
        answers = await asyncio.gather(*(gateway.send(client, f"{number}") for number in range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4
        await wait_until(lambda: gateway.missing() == ["redis"], "the gateway is not ready", poll_s=0.05)
        await raw.delete(bell)
    await wait_until(lambda: gateway.missing() == [], "the gateway is ready", poll_s=0.05)
    assert worker.running


async def test_a_worker_that_cannot_claim_is_not_ready(isolated_cluster: GatewayCluster, own_redis: LocalRedis) -> None:
    """It says that Redis is away, though its heartbeat gets through; it serves once the key is repaired."""
    worker = await isolated_cluster.start_worker()
    lane = isolated_cluster.keys.lanes[0]
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:
        await replace_with_a_list(raw, lane)
        await wait_until(lambda: missing_of(worker) == ["redis"], "the worker is not ready", poll_s=0.05)
        assert worker.log_records("cannot claim")
        assert metric(worker, COUNTER) > 0
        await raw.delete(lane)
    await wait_until(lambda: missing_of(worker) == [], "the worker is ready", poll_s=0.05)
    assert worker.running


async def test_a_job_that_redis_cannot_read_is_a_503(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """The client does not see what Redis replied, and all else is served."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    job_id = "a" * 32
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:
        await replace_with_a_list(raw, isolated_cluster.keys.job(job_id))
        answer = await client.get(f"{gateway.url}/jobs/{format_public_id(isolated_cluster.queue, job_id)}")
        await raw.delete(isolated_cluster.keys.job(job_id))
    assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    assert "WRONGTYPE" not in answer.text
    (line,) = gateway.program.log_records("request failed")
    assert "WRONGTYPE" in line["message"]
    assert (await gateway.send(client, "a")).status_code == 200
