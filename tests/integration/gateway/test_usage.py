"""What tenants have used: all of it is counted once, and faults lose no more than is documented."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import httpx
import pytest
import redis

from shared.messages import PREDICT
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.usage import read_hours
from shared.usage_counts import ANONYMOUS, COUNTS, Usage
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, metric
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(90), pytest.mark.leaves_anything]

MODEL = "simulated:base_ms=3,item_ms=1"
TENANTS = ("web", "shop", ANONYMOUS)


def report(gateway: GatewayProcess, group: str = "tenant") -> dict[str, dict[str, Any]]:
    """Returns the rows of a report by their first group."""
    answer = plain_http.get(f"{gateway.url}/usage?group={group}")
    assert answer.status_code == 200
    return {row[group.partition(",")[0]]: row for row in answer.json()["rows"]}


def total(gateway: GatewayProcess, name: str) -> float:
    """Returns the sum of a count over all tenants."""
    rows = plain_http.get(f"{gateway.url}/usage?group=").json()["rows"]
    return float(rows[0][name]) if rows else 0.0


def headers_of(tenant: str) -> dict[str, str]:
    """Returns the headers of a tenant's request."""
    return {} if tenant == ANONYMOUS else {"x-tenant": tenant}


async def send(client: httpx.AsyncClient, gateway: GatewayProcess, number: int, tenant: str, inputs: int) -> None:
    """Sends a request with texts that no other request has."""
    body = {"texts": [f"text {number} {index}" for index in range(inputs)]}
    answer = await client.post(f"{gateway.url}/embed", json=body, headers=headers_of(tenant))
    assert answer.status_code == 200


async def run_job(client: httpx.AsyncClient, gateway: GatewayProcess, tenant: str, inputs: int) -> None:
    """Runs a job to its end."""
    headers, body = headers_of(tenant), {"texts": [f"job {index}" for index in range(inputs)]}
    created = await client.post(f"{gateway.url}/jobs", json=body, headers=headers)
    ended = await client.get(f"{gateway.url}{created.json()['status_url']}?wait=30", headers=headers)
    assert ended.json()["done"] == inputs


async def test_all_is_counted_once(isolated_cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """What tenants send, and what becomes of it when Redis loses its data, or a worker or a gateway is killed."""
    first, second, gateway = await asyncio.gather(
        isolated_cluster.start_worker(MODEL, reclaim_idle_ms=500),
        isolated_cluster.start_worker(MODEL, reclaim_idle_ms=500),
        isolated_cluster.start_gateway(cache_bytes=10_000_000),
    )
    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 2, "the gateway sees both workers")
    await check_sums(client, gateway, [first, second])
    assert gateway.metric(f'redbatch_tenant_requests_total{{queue="{isolated_cluster.queue}",tenant="shop"}}') == 21
    await check_other_reports(isolated_cluster, gateway)
    await check_faults(isolated_cluster, client, gateway, [first, second])


async def check_sums(client: httpx.AsyncClient, gateway: GatewayProcess, workers: list[Program]) -> None:
    """Checks the counts of each tenant; and the time of the device, which is the measured one within one per cent."""
    sent = [(number, TENANTS[number % 3], 1 + number % 40) for number in range(60)]
    await asyncio.gather(*(send(client, gateway, *each) for each in sent), run_job(client, gateway, "shop", 45))
    inputs = {tenant: sum(each[2] for each in sent if each[1] == tenant) for tenant in TENANTS}
    inputs["shop"] += 45
    await wait_until(lambda: total(gateway, "tokens") == sum(inputs.values()), "all is counted")
    assert gateway.embed({"text": 5}, x_tenant="web").status_code == 400
    for _ in range(2):  # of these texts, which the cache has by now
        await send(client, gateway, 2, "web", 3)
    hits = int(gateway.metric("redbatch_cache_hits_total"))
    assert hits
    num_inputs = sum(inputs.values()) + 6
    await wait_until(lambda: total(gateway, "requests") == 63 and total(gateway, "refusals") == 1, "these too")
    await wait_until(lambda: total(gateway, "inputs") == num_inputs, "their inputs are counted, by gateway and worker")
    rows = report(gateway)
    assert {tenant: rows[tenant]["inputs"] for tenant in TENANTS} == inputs | {"web": inputs["web"] + 6}
    assert {tenant: rows[tenant]["requests"] for tenant in TENANTS} == {"web": 22, "shop": 21, ANONYMOUS: 20}
    assert {tenant: rows[tenant]["cached_tokens"] for tenant in TENANTS} == {"web": hits, "shop": 0, ANONYMOUS: 0}
    assert rows["web"]["refusals"] == 1
    measured_ms = 1000 * sum(metric(each, "redbatch_batch_inference_seconds_sum") for each in workers)
    assert sum(row["device_ms"] for row in rows.values()) == pytest.approx(measured_ms, rel=0.01)
    in_metrics_s = sum(metric(each, "redbatch_tenant_device_seconds_total") for each in workers)
    assert 1000 * in_metrics_s == pytest.approx(measured_ms, rel=0.01)


async def check_other_reports(cluster: GatewayCluster, gateway: GatewayProcess) -> None:
    """Checks groups, errors, and that the command reports the same."""
    by_operation = report(gateway, "operation,model")
    assert {each["model"] for each in by_operation.values()} == {"", cluster.queue}
    assert by_operation["embed"]["failures"] == 0
    assert PREDICT not in by_operation
    assert len(report(gateway, "hour")) in {1, 2}
    for query, part in (
        ("group=tenants", "group: send any of hour"),
        ("from=now", "from: send a time"),
        ("since=2026", "there is no such parameter"),
    ):
        answer = plain_http.get(f"{gateway.url}/usage?{query}")
        assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
        assert part in error_of(answer)["message"]
    command = [sys.executable, "-m", "redbatch", "usage", "--redis-url", cluster.redis_url, "--group", "tenant"]
    process = await asyncio.create_subprocess_exec(*command, "--json", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert {row["tenant"]: row for row in map(json.loads, output.splitlines())} == report(gateway)
    assert set(COUNTS) < set(report(gateway)["web"])


async def check_faults(
    cluster: GatewayCluster, client: httpx.AsyncClient, gateway: GatewayProcess, workers: list[Program]
) -> None:
    """Faults lose no more than is documented, and count nothing twice."""
    numbers = iter(range(1_000, 10_000))
    killed, other = workers

    def send_many(count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(send(client, gateway, next(numbers), "web", 1)) for _ in range(count)]

    def are_counted(count: int) -> bool:
        return total(gateway, "requests") == total(gateway, "inputs") == count

    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        raw.flushall()
        await asyncio.gather(*send_many(30))
        await wait_until(lambda: are_counted(30), "counting goes on after a loss of all data")
        sending = send_many(300)
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        killed.kill()
        await asyncio.gather(*sending)
        await wait_until(lambda: total(gateway, "requests") == 330, "the gateway has counted all")
        assert await other.stop() == 0  # with what it has counted
        assert 30 < total(gateway, "inputs") <= 330  # what was counted before is there, and nothing is twice
        assert gateway.embed({"text": 5}, x_tenant="web").status_code == 400
        gateway.program.kill()
        raw.delete(*raw.keys(f"{cluster.keys.prefix}*"))
    rows = await counted(cluster)
    assert sum(each.requests for each in rows) == 330
    assert sum(each.refusals for each in rows) in {0, 1}


async def counted(cluster: GatewayCluster) -> list[Usage]:
    """Returns the rows of all hours, without a gateway."""
    queue = QueueConnections(QueueSettings(redis_url=cluster.redis_url), cluster.queue, "test")
    hours = range(int(time.time()) // 3_600 - 1, int(time.time()) // 3_600 + 1)
    rows = [each async for _, rows in read_hours([queue.connection("usage")], hours) for each in rows.values()]
    await queue.close()
    return rows
