"""Calls of a tenant beside the jobs of another one, on one slow worker."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from tests.integration.gateway.conftest import NewKey
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything, pytest.mark.timeout(90)]

MAX_QUEUE_INPUTS = 200
"""The entries of jobs have separate bounds in the lanes: up to 1,024, of 32 inputs each."""

JOBS = 20
CLIENTS, CALLS = 8, 40


async def test_jobs_of_one_tenant_refuse_no_call_of_another(
    isolated_cluster: GatewayCluster, new_key: NewKey, client: httpx.AsyncClient
) -> None:
    """Jobs of more inputs than the queue may hold wait in the lanes; another tenant's calls are all answered.

    The calls keep the worker busy, so they take more than the tenant's share of it: those beyond it must not wait
    behind the jobs. And jobs would fill the queue if their entries counted.
    """
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(auth="on", max_queue_inputs=MAX_QUEUE_INPUTS),
        isolated_cluster.start_worker("simulated:base_ms=40,item_ms=1", max_batch_size=4, claim_window=8),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    greedy, other = JobClient(gateway, x_api_key=await new_key()), await new_key()
    for job in range(JOBS):
        assert greedy.post({"texts": [f"{job} {i}" for i in range(2 * MAX_QUEUE_INPUTS)]}).status_code == 202
    await wait_until(lambda: gateway.metric("redbatch_queue_inputs") > MAX_QUEUE_INPUTS, "the lanes are long")
    await wait_until(lambda: gateway.metric("redbatch_fleet_tokens_per_second") > 0, "the rate is known")
    codes = Counter[str]()

    async def call(number: int) -> None:
        for i in range(CALLS):
            body = {"text": f"text {i} of client {number}" + " x" * 50}
            answer = await client.post(f"{gateway.url}/embed", json=body, headers={"x-api-key": other})
            codes["ok" if answer.status_code == 200 else answer.json()["error"]["code"]] += 1

    await asyncio.gather(*(call(number) for number in range(CLIENTS)))
    assert codes == {"ok": CLIENTS * CALLS}
    assert gateway.metric("redbatch_queue_inputs") > MAX_QUEUE_INPUTS, "the jobs waited all the time"
