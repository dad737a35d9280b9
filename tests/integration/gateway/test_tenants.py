"""Tenants at the door: whose a request is, and when it may come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from shared import api_keys
from shared.connection import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import Quota
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, has_vectors
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

TEXT = "x" * 392
"""A hundred tokens, by its length."""


@pytest_asyncio.fixture
async def limited(cluster: GatewayCluster) -> AsyncIterator[list[GatewayProcess]]:
    """Two gateways that give each tenant 25 tokens a second, and 200 at once."""
    bounds = {"tenant_tokens_per_s": 25, "tenant_burst_tokens": 200}
    one, two, _ = await asyncio.gather(
        cluster.start_gateway(**bounds), cluster.start_gateway(**bounds), cluster.start_worker()
    )
    for each in (one, two):
        await wait_until(lambda each=each: each.missing() == [], "a gateway sees the worker")  # type: ignore[misc]
    yield [one, two]


async def test_a_tenant_has_one_bucket_at_all_gateways(cluster: GatewayCluster, limited: list[GatewayProcess]) -> None:
    """What it had here it has not there; it hears when there is enough again, and then there is."""
    one, two = limited
    assert [each.embed({"text": TEXT}, x_tenant="a").status_code for each in limited] == [200, 200]
    answer = two.embed({"text": TEXT}, x_tenant="a")
    assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limited")
    wait_ms = int(answer.headers["retry-after-ms"])
    assert 1_000 <= wait_ms <= 4_400
    assert one.embed({"text": TEXT}, x_tenant="b").status_code == 200
    assert one.embed({"text": TEXT}).status_code == 200, "who says no name is another"
    await asyncio.sleep(wait_ms / 1000)
    assert one.embed({"text": TEXT}, x_tenant="a").status_code == 200
    assert two.errors("rate_limited", cluster.queue) == 1


async def test_what_is_no_name_of_a_tenant_is_refused(limited: list[GatewayProcess]) -> None:
    """With what to send."""
    answer = limited[0].embed({"text": "a"}, x_tenant="a b")
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
    assert "X-Tenant" in error_of(answer)["message"]


@pytest.mark.leaves_anything
async def test_a_key_counts_for_its_tenant(isolated_cluster: GatewayCluster) -> None:
    """By its own quota, whatever the header says; two keys of one tenant share a bucket, and others have their own."""
    queue = QueueConnections(QueueSettings(redis_url=isolated_cluster.redis_url), isolated_cluster.queue, "test")
    quota = Quota(tokens_per_s=1.0, burst_tokens=100)
    made = [api_keys.new_key(("embed",), tenant=name, quota=quota) for name in ("a", "a", "")]
    for key, _ in made:
        await api_keys.add(queue.connection("keys"), key)
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(auth="on"), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    first, second, alone = (whole for _, whole in made)
    assert gateway.embed({"text": TEXT}, x_api_key=first).status_code == 200
    answers = [gateway.embed({"text": TEXT}, x_api_key=key, x_tenant="other") for key in (first, second, alone)]
    assert [each.status_code for each in answers] == [429, 429, 200]
    await queue.close()


async def test_who_asks_for_more_than_its_share_goes_behind(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """Once the fleet's rate is known: what one asks for at once is more than half of what it does in a second."""
    model = "simulated:base_ms=1,item_ms=20"
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(model, max_batch_size=8))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    async def ask(number: int, tenant: str) -> list[bool]:
        lots = [[f"{tenant} {lot} {i}" for i in range(20)] for lot in range(number)]
        headers = {"x-tenant": tenant, "x-timeout-ms": "60000"}
        sent = [client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers) for texts in lots]
        return [has_vectors(answer, texts) for answer, texts in zip(await asyncio.gather(*sent), lots, strict=True)]

    await ask(4, "a")
    await wait_until(lambda: gateway.metric("redbatch_fleet_tokens_per_second") > 0, "the rate is known")
    found = await asyncio.gather(ask(12, "a"), ask(1, "b"))
    assert list(found) == [[True] * 12, [True]]
    assert 4 <= gateway.metric("redbatch_behind_requests_total") <= 12
