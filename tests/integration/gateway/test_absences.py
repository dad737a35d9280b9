"""What a gateway does without a worker, and without Redis."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import statistics
import sys
import time

import httpx
import pytest
import redis.asyncio

from redbatch.up.local_redis import LocalRedis
from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    null_vector,
    vector_bytes,
)
from tests.users import users_are_on
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def refusal(gateway: GatewayProcess) -> tuple[int, str, bool]:
    """Returns the status and code of a request that should not be taken, and whether it may be tried again."""
    answer = gateway.embed({"text": "a"}, x_timeout_ms="400")
    code = error_of(answer)["code"] if answer.status_code != 200 else ""
    return answer.status_code, code, "retry-after" in answer.headers


async def test_a_queue_that_never_had_a_worker_is_refused(cluster: GatewayCluster) -> None:
    """At once and with words, instead of a wait for nobody; /readyz names what is missing, /livez is well."""
    gateway = await cluster.start_gateway()
    assert await asyncio.to_thread(refusal, gateway) == (503, "no_worker", True), "not at its deadline: a 504"
    assert gateway.missing() == ["worker"]
    for base in (gateway.url, gateway.admin):
        assert plain_http.get(f"{base}/livez").status_code == 200
        assert plain_http.get(f"{base}/readyz").json() == {"status": "unavailable", "missing": ["worker"]}
        assert plain_http.get(f"{base}/readyz?exclude=worker").json() == {"status": "ok"}


async def test_the_restart_of_the_last_worker_fails_nobody(cluster: GatewayCluster) -> None:
    """When it has left, requests are still taken, and the next worker serves them."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert await worker.stop() == 0
    await wait_until(lambda: gateway.missing() == ["worker"], "the gateway sees that it has left")
    sent = asyncio.create_task(asyncio.to_thread(gateway.embed, {"text": "a", "timeout_ms": 50_000}))
    await cluster.start_worker()
    answer = await sent
    assert vector_bytes(answer.json()["embedding"]) == null_vector("a")


async def test_past_the_grace_of_a_worker_requests_are_refused(cluster: GatewayCluster) -> None:
    """Nobody has come in its place for worker_grace_s."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(worker_grace_s=1), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    await worker.stop()
    await wait_until(lambda: refusal(gateway) == (503, "no_worker", True), "requests are refused", poll_s=0.1)


async def test_without_redis_requests_are_refused_past_a_grace(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Within the grace they wait for Redis; then new ones hear at once that it is away. Those that wait are served."""
    grace_s = 3.0
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(redis_grace_s=grace_s), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    own_redis.stop()
    began = time.monotonic()
    patient = asyncio.create_task(gateway.send(client, "patient", x_timeout_ms="60000"))
    assert await asyncio.to_thread(refusal, gateway) == (503, "redis_unreachable", True)
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is gone")
    await wait_until(lambda: time.monotonic() - began > grace_s + 0.5, "the grace is over")
    took = []
    for _ in range(20):
        asked = time.monotonic()
        answer = await gateway.send(client, "a", x_timeout_ms="60000")
        took.append(time.monotonic() - asked)
        assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    sys.stdout.write(f"refused after {statistics.median(took) * 1000:.1f} ms, at most {max(took) * 1000:.1f} ms\n")
    assert statistics.median(took) < 0.05
    assert plain_http.get(f"{gateway.url}/livez").status_code == 200
    assert not patient.done()
    own_redis.start()
    assert vector_bytes((await patient).json()["embedding"]) == null_vector("patient")
    await wait_until(lambda: refusal(gateway)[0] == 200, "requests are served again", poll_s=0.05, timeout_s=10)


async def test_a_gateway_without_redis_tells_nothing_of_it(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis
) -> None:
    """For some seconds it shows what it saw last; then neither workers nor memory, until Redis is back."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
    memory = "redbatch_redis_memory_bytes"

    def shows_the_fleet() -> bool:
        return "redbatch_workers{" in plain_http.get(f"{gateway.admin}/metrics").text

    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 1, "it shows the worker")
    assert gateway.metric(memory) > 0
    own_redis.stop()
    await wait_until(lambda: gateway.metric("redbatch_redis_up") == 0, "it shows that Redis is away")
    assert shows_the_fleet()
    await wait_until(lambda: not shows_the_fleet(), "it shows no workers", poll_s=0.1)
    assert math.isnan(gateway.metric(memory))
    own_redis.start()
    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 1, "it shows the worker again")
    assert gateway.metric(memory) > 0


async def test_nobody_waits_longer_for_redis_than_it_has_been_away(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Within the grace too: a request with less time than the outage has lasted hears so at once."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(redis_grace_s=60), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    own_redis.stop()
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is gone")
    gone = time.monotonic()
    await wait_until(lambda: time.monotonic() - gone > 0.8, "it has been away for a while")
    asked = time.monotonic()
    answer = await gateway.send(client, "a", x_timeout_ms="750")
    assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    assert time.monotonic() - asked < 0.7
    patient = asyncio.create_task(gateway.send(client, "patient", x_timeout_ms="60000"))
    own_redis.start()
    assert vector_bytes((await patient).json()["embedding"]) == null_vector("patient")


async def test_what_a_silent_redis_has_not_taken_is_a_503(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """It takes connections and answers nobody: what it never took may be sent again. /livez is well meanwhile."""
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(redis_timeout_s=30), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        answer = await gateway.send(client, "a", x_timeout_ms="3500")
        assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
        assert "retry-after" in answer.headers
        assert gateway.metric("redbatch_redis_up") == 0
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    await wait_until(lambda: refusal(gateway)[0] == 200, "requests are served again", poll_s=0.05, timeout_s=10)


async def test_an_outage_that_ends_in_a_refusal_is_over(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Redis is back, without the rights that scripts need. That request fails; once that is mended, the next do not."""
    grace_s = 0.5
    gateway, worker = await asyncio.gather(
        isolated_cluster.start_gateway(redis_grace_s=grace_s), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    worker.signal(signal.SIGSTOP)  # it would end, and say why
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:
        await raw.replicaof("127.0.0.1", "1")
        sent = asyncio.create_task(gateway.send(client, "a"))
        await wait_until(lambda: gateway.missing() == ["redis"], "the submit is repeated")
        user = "gateway" if users_are_on() else "default"
        await raw.execute_command("ACL", "SETUSER", user, "-@scripting")
        assert (await sent).status_code == 500
        await raw.replicaof("NO", "ONE")
        await raw.execute_command("ACL", "SETUSER", user, "+@scripting")
        await raw.execute_command("ACL", "LOG", "RESET")
    worker.signal(signal.SIGCONT)
    await asyncio.sleep(2 * grace_s)
    await wait_until(lambda: refusal(gateway)[0] == 200, "requests are served again", poll_s=0.05, timeout_s=10)


async def test_a_gateway_that_starts_without_redis_serves_when_it_comes(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis
) -> None:
    """It does not end; it says what is missing."""
    own_redis.stop()
    gateway = await isolated_cluster.start_gateway()
    assert gateway.missing() == ["redis"]
    own_redis.start()
    await asyncio.gather(
        isolated_cluster.start_worker(), wait_until(lambda: gateway.missing() != ["redis"], "Redis is there")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees both")
    assert gateway.embed({"text": "a"}).status_code == 200


async def test_requests_survive_a_restart_of_redis_with_the_loss_of_its_data(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Requests in the model, in the queue and just arriving are all answered with their own vectors, in one go."""
    model = "simulated:base_ms=300,item_ms=0"
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(), isolated_cluster.start_worker(model, max_batch_size=4)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    texts = [f"text {i}" for i in range(24)]
    sent = [asyncio.create_task(gateway.send(client, text, x_timeout_ms="20000")) for text in texts[:16]]
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:

        async def claimed() -> bool:
            return int((await raw.xpending(isolated_cluster.keys.lanes[0], "workers"))["pending"]) >= 4

        await wait_until(claimed, "the worker has begun")
    own_redis.stop()
    sent += [asyncio.create_task(gateway.send(client, text, x_timeout_ms="20000")) for text in texts[16:]]
    own_redis.start()
    answers = await asyncio.gather(*sent)
    assert [each.status_code for each in answers] == [200] * 24
    assert [vector_bytes(each.json()["embedding"]) for each in answers] == [null_vector(text) for text in texts]


async def test_after_the_loss_of_all_data_a_worker_is_not_taken_for_dead(
    cluster: GatewayCluster, client: httpx.AsyncClient, raw: redis.asyncio.Redis
) -> None:
    """What the gateway knew of the fleet does not vanish with Redis' data: no request is refused meanwhile."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    until = time.monotonic() + 2.5
    statuses = set()
    await raw.flushall()
    while time.monotonic() < until:
        statuses.add((await gateway.send(client, "a")).status_code)
    assert statuses == {200}
