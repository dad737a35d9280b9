"""The limits of the queue, which are exact and shared by all gateways, and other refusals under load."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import redis.asyncio

from api.dispatch.inflight import RESUBMIT_INTERVAL_S
from shared import consumer
from shared.messages import Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster, error_of, has_vectors, null_vector, vector_bytes
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


async def test_the_queue_limit_is_exact_over_two_gateways(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None, raw: redis.asyncio.Redis
) -> None:
    """Of 200 concurrent requests exactly the 50 that fit are answered; the others get a 429 with Retry-After."""
    one, two = await asyncio.gather(*(cluster.start_gateway(max_queue_inputs=50) for _ in range(2)))
    texts = [f"text {i}" for i in range(200)]
    sent = [
        asyncio.create_task((one, two)[i % 2].send(client, text, x_timeout_ms="30000")) for i, text in enumerate(texts)
    ]
    await wait_until(lambda: sum(task.done() for task in sent) == 150, "all requests that do not fit are refused")
    assert await raw.xlen(cluster.keys.lanes[0]) == 50
    refused = [task.result() for task in sent if task.done()]
    assert Counter((each.status_code, error_of(each)["code"]) for each in refused) == {(429, "queue_full"): 150}
    assert all(1 <= int(each.headers["retry-after"]) <= 45 for each in refused)
    await cluster.start_worker()
    answers = await asyncio.gather(*sent)
    accepted = [(text, each) for text, each in zip(texts, answers, strict=True) if each.status_code == 200]
    assert len(accepted) == 50
    assert all(vector_bytes(each.json()["embedding"]) == null_vector(text) for text, each in accepted)


async def test_lost_entries_exceed_the_bound_by_no_more_than_was_in_flight(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """All data is deleted three times under load: what was accepted is added again once, whatever fills the queue."""
    bound, lane = 20, isolated_cluster.keys.lanes[0]
    gateway = await isolated_cluster.start_gateway(max_queue_inputs=bound, requests_per_entry=1)
    sent: list[asyncio.Task[httpx.Response]] = []

    async def has_each_once() -> bool:
        return int(await raw.xlen(lane)) == sum(not each.done() for each in sent)

    async with ghost_worker(isolated_cluster), redis.asyncio.Redis.from_url(isolated_cluster.redis_url) as raw:
        await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
        in_flight, excesses = 0, []
        for number in range(4):
            until = time.monotonic() + 2 * RESUBMIT_INTERVAL_S
            while time.monotonic() < until:
                sent.append(asyncio.create_task(gateway.send(client, f"text {len(sent)}", x_timeout_ms="60000")))
                length = await raw.xlen(lane)
                assert length <= bound + in_flight
                excesses.append(length - bound)
                await asyncio.sleep(0.01)
            await wait_until(has_each_once, "each that is not refused is in the queue once")
            in_flight = await raw.xlen(lane)
            if number < 3:
                await raw.flushall()
    assert max(excesses) > 0, "what was accepted passes the bound"
    await isolated_cluster.start_worker()
    codes = Counter(each.status_code for each in await asyncio.gather(*sent))
    assert codes == {200: in_flight, 429: len(sent) - in_flight}


@asynccontextmanager
async def ghost_worker(cluster: GatewayCluster) -> AsyncIterator[None]:
    """Sends heartbeats of a worker that claims nothing, also after Redis has lost them."""
    queue = QueueConnections(QueueSettings(redis_url=as_user(cluster.redis_url, "worker")), cluster.queue, "test")
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)

    async def send() -> None:
        while True:
            await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 10_000)
            await asyncio.sleep(0.05)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        await queue.close()


async def test_a_full_queue_refuses_to_rerank(cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """In the words of TEI, and of vLLM's and Cohere's clients; what was accepted is answered."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(max_queue_inputs=5), cluster.start_worker("simulated:labels=1")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    worker.signal(signal.SIGSTOP)
    ranked = {"query": "q", "texts": ["a", "b", "c"]}
    url, headers = f"{gateway.url}/rerank", {"x-timeout-ms": "30000"}
    try:
        first = asyncio.create_task(client.post(url, json=ranked, headers=headers))
        await wait_until(lambda: gateway.metric("redbatch_queue_inputs") == 3, "the first request is in the queue")
        refused = await client.post(url, json=ranked, headers=headers)
        body = {"query": "q", "documents": ["a", "b", "c"]}
        also = await client.post(url, json=body, headers=headers)
    finally:
        worker.signal(signal.SIGCONT)
    assert (refused.status_code, refused.json()["error_type"]) == (429, "Overloaded")
    assert refused.json()["error"].startswith("Model is overloaded")
    assert (also.status_code, also.json()["error"]["code"]) == (429, "queue_full")
    assert all(int(each.headers["retry-after"]) >= 1 for each in (refused, also))
    answer = await first
    assert (answer.status_code, len(answer.json())) == (200, 3)


async def test_a_request_is_accepted_as_a_whole_or_refused(
    cluster: GatewayCluster, client: httpx.AsyncClient, fake_heartbeat: None, raw: redis.asyncio.Redis
) -> None:
    """If not all entries of a request fit, none enters the queue, and a smaller request may still fit."""
    gateway = await cluster.start_gateway(max_queue_inputs=100)
    texts = [f"text {i}" for i in range(70)]
    headers = {"x-timeout-ms": "30000"}
    first = asyncio.create_task(client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers))

    async def has_entries(number: int) -> bool:
        return int(await raw.xlen(cluster.keys.lanes[0])) == number

    await wait_until(lambda: has_entries(3), "the first request is in the queue")
    assert (await client.post(f"{gateway.url}/embed", json={"texts": texts[:31]})).status_code == 429
    assert await has_entries(3)
    second = asyncio.create_task(client.post(f"{gateway.url}/embed", json={"texts": texts[:30]}, headers=headers))
    await wait_until(lambda: has_entries(4), "the smaller request is in the queue")
    await cluster.start_worker()
    assert has_vectors(await first, texts)
    assert has_vectors(await second, texts[:30])


async def test_entries_of_a_suspended_worker_count_for_the_limit(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """The limit also counts entries that a suspended worker holds; all accepted requests are answered in the end."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(max_queue_inputs=20, requests_per_entry=1),  # a shared entry fits as a whole, or not
        cluster.start_worker(),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    worker.signal(signal.SIGSTOP)
    try:
        sent = [asyncio.create_task(gateway.send(client, f"text {i}")) for i in range(60)]
        await wait_until(lambda: sum(task.done() for task in sent) == 40, "all requests that do not fit are refused")
    finally:
        worker.signal(signal.SIGCONT)
    answers = await asyncio.gather(*sent)
    assert Counter(each.status_code for each in answers) == {200: 20, 429: 40}


async def test_a_short_request_is_not_refused_for_long_ones_that_it_overtakes(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """A worker holds long texts, seconds of work: it accepts and answers a short one, and refuses one more long one."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(),
        cluster.start_worker("simulated:base_ms=5,item_ms=20", max_batch_size=8, max_batch_tokens=64),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    async def send(texts: list[str], timeout_ms: int) -> int:
        headers = {"x-timeout-ms": str(timeout_ms)}
        return (await client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers)).status_code

    def long_texts(name: str, number: int) -> list[str]:
        return [f"{name} {i} " + "word " * 60 for i in range(number)]

    assert await send(long_texts("before", 40), 30_000) == 200
    await wait_until(
        lambda: gateway.metric("redbatch_fleet_tokens_per_second") > 0, "the gateway knows the worker's rate"
    )
    backlog = [asyncio.create_task(send(long_texts(f"request {i},", 60), 60_000)) for i in range(8)]

    async def short_overtakes() -> bool:
        """A long text is refused before and after the short one, so what it would wait for is still there."""
        before = await send(long_texts("refused", 1), 3_000)
        accepted = await send(["short"], 3_000)
        return (before, accepted, await send(long_texts("refused", 1), 3_000)) == (429, 200, 429)

    await wait_until(short_overtakes, "a short text overtakes the long ones")
    assert await asyncio.gather(*backlog) == [200] * len(backlog)


@pytest.mark.exclusive
async def test_requests_that_cannot_meet_their_deadline_are_refused_at_once(
    cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """Under overload accepted requests are answered, and the others get a 429 with the time of the next attempt.

    No request expires in the queue, and a request with a longer timeout is still accepted.
    """
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker("simulated:base_ms=5,item_ms=20", max_batch_size=8)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    def send(name: str, number: int, timeout_ms: int) -> asyncio.Task[httpx.Response]:
        texts = [f"{name} {i}" for i in range(number)]
        headers = {"x-timeout-ms": str(timeout_ms)}
        return asyncio.create_task(client.post(f"{gateway.url}/embed", json={"texts": texts}, headers=headers))

    assert (await send("before", 100, 30_000)).status_code == 200
    await wait_until(
        lambda: gateway.metric("redbatch_fleet_tokens_per_second") > 0, "the gateway knows the worker's rate"
    )
    sent = [send(f"request {i},", 20, 4_000) for i in range(40)]
    await wait_until(lambda: any(task.done() for task in sent), "a request is answered")
    patient = await send("patient", 1, 60_000)
    answers = await asyncio.gather(*sent)
    codes = Counter(each.status_code for each in answers)
    refused = [each for each in answers if each.status_code == 429]
    assert set(codes) == {200, 429}
    assert 4 <= codes[200] <= 20
    assert {error_of(each)["code"] for each in refused} == {"overloaded"}
    assert all(1_000 <= int(each.headers["retry-after-ms"]) <= 30_000 for each in refused)
    assert patient.status_code == 200
    assert await worker.stop() == 0
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 0, "the gateway sees that the worker has stopped")
    assert gateway.metric("redbatch_fleet_tokens_per_second") > 0, (
        "the last rate is the best estimate for the next worker"
    )


async def test_requests_are_refused_before_redis_is_full(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """Before the memory of Redis is full, requests get a 429 with Retry-After; with free memory they are accepted."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    async with redis.asyncio.Redis.from_url(isolated_cluster.redis_url, protocol=2) as raw:
        used = int((await raw.info("memory"))["used_memory"])
        await raw.config_set("maxmemory", used * 5 // 4)
        await wait_until(
            lambda: gateway.metric("redbatch_redis_memory_ratio") > 0.7, "the gateway sees the memory ratio"
        )
        answer = await gateway.send(client, "a")
        assert (answer.status_code, error_of(answer)["code"]) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        await raw.config_set("maxmemory", used * 4)
        await wait_until(
            lambda: gateway.metric("redbatch_redis_memory_ratio") < 0.7, "the gateway sees the memory ratio"
        )
        assert (await gateway.send(client, "b")).status_code == 200


async def test_a_request_larger_than_the_queue_is_a_413(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """A request beyond the limit of inputs or tokens (for bulk, half of it) gets a 413 without Retry-After."""
    gateway = await cluster.start_gateway(max_queue_inputs=10, max_queue_tokens=1_000)
    for body, bound in (
        ({"texts": ["a"] * 11}, "11 inputs exceed the maximum of this lane (10)"),
        ({"texts": ["a"] * 6, "priority": "bulk"}, "6 inputs exceed the maximum of this lane (5)"),
        ({"text": "word " * 1_000}, "About 1252 tokens exceed the maximum of this lane (1000)"),
        ({"text": "word " * 500, "priority": "bulk"}, "tokens exceed the maximum of this lane (500)"),
    ):
        answer = gateway.embed(body)
        assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
        assert bound in error_of(answer)["message"]
        assert "retry-after" not in answer.headers
    assert gateway.embed({"texts": ["a"] * 10}, x_timeout_ms="50").status_code == 504
