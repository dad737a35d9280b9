"""Tenants that take what they can: the bounds of each, and what is left for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import pytest_asyncio

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
