"""Tenants at the gateway: the tenant of a request, and rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from shared import api_keys
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import Quota
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, has_vectors
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

TEXT = "x" * 392
"""About 100 tokens, as estimated from its length."""


@pytest_asyncio.fixture
async def limited(cluster: GatewayCluster) -> AsyncIterator[list[GatewayProcess]]:
    """Two gateways with limits of 15 tokens per second and tenant, and bursts of 200 tokens."""
    limits = {"tenant_tokens_per_s": 15, "tenant_burst_tokens": 200}
    one, two, _ = await asyncio.gather(
        cluster.start_gateway(**limits), cluster.start_gateway(**limits), cluster.start_worker()
    )
    for each in (one, two):
        await wait_until(lambda each=each: each.missing() == [], "a gateway sees the worker")  # type: ignore[misc]
    yield [one, two]


async def test_a_tenant_has_one_bucket_for_all_gateways(cluster: GatewayCluster, limited: list[GatewayProcess]) -> None:
    """Gateways share a tenant's bucket; the 429 says when it has enough tokens, and a request then succeeds."""
    one, two = limited
    assert [each.embed({"text": TEXT}, x_tenant="a").status_code for each in limited] == [200, 200]
    answer = two.embed({"text": TEXT}, x_tenant="a")
    assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limited")
    wait_ms = int(answer.headers["retry-after-ms"])
    assert 1_000 <= wait_ms <= 7_400
    assert one.embed({"text": TEXT}, x_tenant="b").status_code == 200
    assert one.embed({"text": TEXT}).status_code == 200, "a request without a tenant shares the bucket"
    await asyncio.sleep(wait_ms / 1000)
    assert one.embed({"text": TEXT}, x_tenant="a").status_code == 200
    assert two.errors("rate_limited", cluster.queue) == 1


async def test_an_invalid_tenant_is_refused(limited: list[GatewayProcess]) -> None:
    """An invalid X-Tenant gets a 400 whose message names the header."""
    answer = limited[0].embed({"text": "a"}, x_tenant="a b")
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
    assert "X-Tenant" in error_of(answer)["message"]


@pytest.mark.leaves_anything
async def test_an_api_key_belongs_to_its_tenant(isolated_cluster: GatewayCluster) -> None:
    """Keys of a tenant share a bucket with the keys' quota, whatever the header says; other keys have their own."""
    queue = QueueConnections(QueueSettings(redis_url=isolated_cluster.redis_url), isolated_cluster.queue, "test")
    quota = Quota(tokens_per_s=1.0, burst_tokens=100)
    new_keys = [api_keys.new_key(("embed",), tenant=name, quota=quota) for name in ("a", "a", "")]
    for key, _ in new_keys:
        await api_keys.add(queue.connection("keys"), key)
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(auth="on"), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    first, second, without_tenant = (api_key for _, api_key in new_keys)
    assert gateway.embed({"text": TEXT}, x_api_key=first).status_code == 200
    answers = [
        gateway.embed({"text": TEXT}, x_api_key=key, x_tenant="other") for key in (first, second, without_tenant)
    ]
    assert [each.status_code for each in answers] == [429, 429, 200]
    await queue.close()


async def test_requests_beyond_the_fair_share_go_to_bulk(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """Once the fleet's rate is known, a tenant's requests beyond its share go behind others, and all are answered.

    The tenant's concurrent requests are more than half of the work of the fleet in a second.
    """
    model = "simulated:base_ms=1,item_ms=20"
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(model, max_batch_size=8))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    async def send(number: int, tenant: str) -> list[bool]:
        requests = [[f"{tenant} {index} {i}" for i in range(20)] for index in range(number)]
        headers = {"x-tenant": tenant, "x-timeout-ms": "60000"}
        sent = [client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers) for texts in requests]
        return [has_vectors(answer, texts) for answer, texts in zip(await asyncio.gather(*sent), requests, strict=True)]

    await send(4, "a")
    await wait_until(lambda: gateway.metric("redbatch_fleet_tokens_per_second") > 0, "the rate is known")
    results = await asyncio.gather(send(12, "a"), send(1, "b"))
    assert list(results) == [[True] * 12, [True]]
    assert 4 <= gateway.metric("redbatch_behind_requests_total") <= 12
