"""Tenants that take what they can: the bounds of each, and what is left for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import pytest_asyncio
import redis

from shared import api_keys
from shared.connection import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import NO_QUOTA, Quota
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything, pytest.mark.timeout(90)]

NewKey = Callable[[Quota], Coroutine[Any, Any, str]]


@pytest_asyncio.fixture
async def new_key(isolated_cluster: GatewayCluster) -> AsyncIterator[NewKey]:
    """Creates an API key of a new tenant with a quota."""
    queue = QueueConnections(QueueSettings(redis_url=isolated_cluster.redis_url), isolated_cluster.queue, "test")

    async def create(quota: Quota = NO_QUOTA) -> str:
        key, secret = api_keys.new_key(("embed", "jobs"), quota=quota)
        await api_keys.add(queue.connection("keys"), key)
        return secret

    yield create
    await queue.close()


async def start(cluster: GatewayCluster, **settings: object) -> GatewayProcess:
    """Starts a gateway that requires keys, and a worker."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on", **settings), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


async def test_the_first_request_of_a_day_has_no_more_than_the_day(
    isolated_cluster: GatewayCluster, new_key: NewKey
) -> None:
    """A job or request above the daily quota is refused as the first of the day, and takes nothing from it."""
    key = await new_key(Quota(daily_tokens=100))
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=key)
    large = ["a text of some words"] * 1_000
    for answer in (
        client.post({"texts": large}),
        client.post_lines(large),
        gateway.embed({"texts": large[:50]}, x_api_key=key),
    ):
        assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
        assert "100 a day" in error_of(answer)["message"]
    assert client.wait_until_ended(client.job_of(client.post({"texts": large[:10]})))["done"] == 10  # 70 tokens
    answer = client.post({"texts": large[:5]})
    assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limited")
    assert gateway.embed({"texts": large[:4]}, x_api_key=key).status_code == 200


def used_memory(cluster: GatewayCluster) -> int:
    """Returns the bytes that Redis uses for keys, without the buffers of clients."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        return int(raw.info("memory")["used_memory_dataset"])


def job_keys(cluster: GatewayCluster) -> list[str]:
    """Returns the keys of all jobs."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        return [name.decode() for name in raw.scan_iter(match=cluster.keys.job("*"), count=1_000)]


async def test_inputs_that_cannot_run_do_not_fill_redis(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A job of which nothing can run is refused and leaves no key. Beside a text, each 32 such inputs share an error."""
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=await new_key())
    empty, before = b'""\n' * 200_000, used_memory(isolated_cluster)
    refused = client.post_lines(iter([empty]))
    assert (refused.status_code, error_of(refused)["code"]) == (400, "nothing_to_run")
    assert job_keys(isolated_cluster) == []
    new_job = client.job_of(client.post_lines(iter([b'"a text"\n' + empty])))
    job = client.wait_until_ended(new_job)
    assert (job["status"], job["done"], job["failed"]) == ("done", 1, 200_000)
    assert used_memory(isolated_cluster) - before < 10 * 200_000
    page = client.get(new_job["result_url"] + "?offset=100000&limit=100").json()
    assert [each["index"] for each in page["errors"]] == list(range(100_000, 100_100))


async def test_a_deleted_job_frees_its_memory_at_once(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """DELETE removes the results and errors of a job that has ended; only its status is left."""
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=await new_key())
    new_job = client.job_of(client.post({"texts": ["a", "", "b"]}))
    assert client.wait_until_ended(new_job)["status"] == "done"
    assert len(job_keys(isolated_cluster)) == 3
    assert client.delete(new_job["status_url"]).json()["status"] == "cancelled"
    assert len(job_keys(isolated_cluster)) == 1
    gone = client.get(new_job["result_url"])
    assert (gone.status_code, error_of(gone)["code"]) == (410, "job_gone")


async def test_inputs_that_cannot_run_are_charged(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """Each input counts for the quota when it is received, at least as one token."""
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=await new_key(Quota(daily_tokens=1_000)))
    body = ["a text", *[""] * 900]
    client.wait_until_ended(client.job_of(client.post_lines(body)))
    answer = client.post_lines(body)
    assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limited")
