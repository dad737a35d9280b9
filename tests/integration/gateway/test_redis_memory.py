"""What the bounds of a queue add up to in Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from api.redis_memory_bounds import ClusterSize, max_redis_bytes
from api.settings import GatewaySettings
from tests.integration.gateway.conftest import NewKey
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of
from tests.integration.gateway.job_client import JobClient
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.leaves_anything]

MIB = 2**20
BOUNDS: dict[str, Any] = {
    "max_in_flight_bytes": 8 * MIB,
    "max_body_bytes": 4 * MIB,
    "max_v1_body_bytes": 4 * MIB,
    "max_predict_body_bytes": 4 * MIB,
    "max_queue_inputs": 1_000,
    "max_owed_bytes": 128 * MIB,
    "max_result_ratio": 0.02,
    "max_inline_bytes": 0,
    "reply_connections": 2,
    "cache_bytes": 8 * MIB,
}
REDIS_BYTES = 2**30
"""maxmemory of Redis: more than all bounds allow, so that it refuses nothing."""

MAX_ATTEMPTS = 400
"""Jobs of 3.8 MB: without `max_owed_bytes` they would take 1.5 GB, and Redis would be full."""


async def test_redis_takes_no_more_than_stated(
    isolated_cluster: GatewayCluster, own_redis: Server, new_key: NewKey
) -> None:
    """Cached vectors, inputs of open jobs, and results of jobs, of four tenants, until the jobs of each are refused."""
    with redis.Redis.from_url(own_redis.url, protocol=2) as raw:
        raw.config_set("maxmemory", REDIS_BYTES)
        gateway, worker = await asyncio.gather(
            isolated_cluster.start_gateway(auth="on", **BOUNDS), isolated_cluster.start_worker(max_batch_size=256)
        )
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        await wait_until(lambda: gateway.metric("redbatch_redis_memory_ratio") > 0, "the gateway knows the maxmemory")
        keys = [await new_key() for _ in range(4)]
        clients = [JobClient(gateway, x_api_key=key) for key in keys]
        for number in range(40):
            body = {"texts": [f"{number} {i}" for i in range(1_000)]}
            assert gateway.embed(body, x_api_key=keys[number % 4]).status_code == 200
        worker.kill()
        assert {fill_inputs(each) for each in clients} <= {"too_many_jobs", "jobs_full"}
        await isolated_cluster.start_worker(max_batch_size=256)
        await wait_until(lambda: gateway.metric("redbatch_open_jobs") == 0, "the jobs have ended", timeout_s=60)
        assert {fill_results(each) for each in clients} <= {"too_many_results", "jobs_full"}
        peak = int(raw.info("memory")["used_memory_peak"])
    stated = max_redis_bytes(GatewaySettings.model_validate(BOUNDS), ClusterSize(1, 1, REDIS_BYTES, 200))
    assert 128 * MIB < peak <= stated < REDIS_BYTES


def fill_results(client: JobClient) -> str:
    """Creates jobs whose results are kept, until one is refused; returns the code of the refusal."""
    for _ in range(MAX_ATTEMPTS):
        answer = client.post({"texts": [f"a text {i}" for i in range(1_000)]})
        if answer.status_code != 202:
            return str(error_of(answer)["code"])
        client.wait_until_ended(client.job_of(answer))
    return ""


def fill_inputs(client: JobClient) -> str:
    """Creates jobs that stay open, until one is refused; returns the code of the refusal."""
    for number in range(MAX_ATTEMPTS):
        answer = client.post({"texts": [f"{number} {i} " + "x" * 100_000 for i in range(38)]})
        if answer.status_code != 202:
            return str(error_of(answer)["code"])
    return ""
