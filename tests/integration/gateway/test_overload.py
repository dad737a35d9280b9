"""The bound of the queue: exact, and one for all gateways."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import httpx
import pytest
import redis.asyncio

from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of, has_vectors, null_vector, vector_bytes
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


async def test_the_bound_is_exact_over_two_gateways(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None, raw: redis.asyncio.Redis
) -> None:
    """Of 200 requests at once, exactly the 50 that fit are taken, and answered; the others hear when to come again."""
    one, two = await asyncio.gather(*(cluster.start_gateway(max_queue_inputs=50) for _ in range(2)))
    texts = [f"text {i}" for i in range(200)]
    sent = [
        asyncio.create_task((one, two)[i % 2].send(client, text, x_timeout_ms="30000")) for i, text in enumerate(texts)
    ]
    await wait_until(lambda: sum(task.done() for task in sent) == 150, "all that do not fit are answered")
    assert await raw.xlen(cluster.keys.lanes[0]) == 50
    refused = [task.result() for task in sent if task.done()]
    assert Counter((each.status_code, error_of(each)["code"]) for each in refused) == {(429, "queue_full"): 150}
    assert all(1 <= int(each.headers["retry-after"]) <= 45 for each in refused)
    await cluster.start_worker()
    answers = await asyncio.gather(*sent)
    taken = [(text, each) for text, each in zip(texts, answers, strict=True) if each.status_code == 200]
    assert len(taken) == 50
    assert all(vector_bytes(each.json()["embedding"]) == null_vector(text) for text, each in taken)


async def test_a_request_fits_whole_or_not_at_all(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None, raw: redis.asyncio.Redis
) -> None:
    """Of a request with several entries none is in the queue when not all of them fit, and a smaller one still may."""
    gateway = await cluster.start_gateway(max_queue_inputs=100)
    texts = [f"text {i}" for i in range(70)]
    headers = {"x-timeout-ms": "30000"}
    first = asyncio.create_task(client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers))

    async def holds(number: int) -> bool:
        return int(await raw.xlen(cluster.keys.lanes[0])) == number

    await wait_until(lambda: holds(3), "the first request is in the queue")
    assert (await client.post(f"{gateway.url}/embed", json={"texts": texts[:31]})).status_code == 429
    assert await holds(3)
    second = asyncio.create_task(client.post(f"{gateway.url}/embed", json={"texts": texts[:30]}, headers=headers))
    await wait_until(lambda: holds(4), "the smaller request is in the queue")
    await cluster.start_worker()
    assert has_vectors(await first, texts)
    assert has_vectors(await second, texts[:30])


async def test_a_worker_that_hangs_fills_the_queue_and_no_more(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """While the worker stands still the bound counts what it holds too; all that was taken is answered in the end."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(max_queue_inputs=20), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    worker.signal(signal.SIGSTOP)
    try:
        sent = [asyncio.create_task(gateway.send(client, f"text {i}")) for i in range(60)]
        await wait_until(lambda: sum(task.done() for task in sent) == 40, "all that do not fit are answered")
    finally:
        worker.signal(signal.SIGCONT)
    answers = await asyncio.gather(*sent)
    assert Counter(each.status_code for each in answers) == {200: 20, 429: 40}


@pytest.mark.exclusive
async def test_what_cannot_be_answered_in_time_is_refused_at_once(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """Far more than the worker does within the deadline: what is taken is answered, the rest hears when to come again.

    Nothing expires in the queue, and who may wait longer is still taken.
    """
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker("simulated:base_ms=5,item_ms=20", max_batch_size=8)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    def ask(name: str, number: int, timeout_ms: int) -> asyncio.Task[httpx.Response]:
        texts = [f"{name} {i}" for i in range(number)]
        headers = {"x-timeout-ms": str(timeout_ms)}
        return asyncio.create_task(client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers))

    assert (await ask("before", 100, 30_000)).status_code == 200
    await wait_until(
        lambda: gateway.metric("redbatch_fleet_tokens_per_second") > 0, "the gateway knows the worker's rate"
    )
    sent = [ask(f"request {i},", 20, 4_000) for i in range(40)]
    await wait_until(lambda: any(task.done() for task in sent), "somebody is answered")
    patient = await ask("patient", 1, 60_000)
    answers = await asyncio.gather(*sent)
    codes = Counter(each.status_code for each in answers)
    refused = [each for each in answers if each.status_code == 429]
    assert set(codes) == {200, 429}
    assert 4 <= codes[200] <= 20
    assert {error_of(each)["code"] for each in refused} == {"overloaded"}
    assert all(1_000 <= int(each.headers["retry-after-ms"]) <= 30_000 for each in refused)
    assert patient.status_code == 200
    assert await worker.stop() == 0
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 0, "the gateway sees it go")
    assert gateway.metric("redbatch_fleet_tokens_per_second") > 0, "what one did is the best guess at the next"


async def test_a_redis_that_gets_full_takes_nothing_new(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """Before its memory is full, requests are refused with a time to come again; with room again they are taken."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    async with redis.asyncio.Redis.from_url(isolated_cluster.redis_url, protocol=2) as raw:
        used = int((await raw.info("memory"))["used_memory"])
        await raw.config_set("maxmemory", used * 5 // 4)
        await wait_until(lambda: gateway.metric("redbatch_redis_memory_ratio") > 0.7, "the gateway has noticed")
        answer = await gateway.send(client, "a")
        assert (answer.status_code, error_of(answer)["code"]) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        await raw.config_set("maxmemory", used * 4)
        await wait_until(lambda: gateway.metric("redbatch_redis_memory_ratio") < 0.7, "the gateway has noticed")
        assert (await gateway.send(client, "b")).status_code == 200


async def test_what_an_empty_queue_would_not_take_is_told_so(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """To come again would never help: by its inputs or its tokens, in bulk from half of the bound on."""
    gateway = await cluster.start_gateway(max_queue_inputs=10, max_queue_tokens=1_000)
    for body in (
        {"texts": ["a"] * 11},
        {"texts": ["a"] * 6, "priority": "bulk"},
        {"text": "word " * 1_000},
        {"text": "word " * 500, "priority": "bulk"},
    ):
        answer = gateway.embed(body)
        assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
        assert "retry-after" not in answer.headers
    assert gateway.embed({"texts": ["a"] * 10}, x_timeout_ms="50").status_code == 504
