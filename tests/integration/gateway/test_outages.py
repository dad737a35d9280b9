"""A gateway without workers, and without Redis."""

from __future__ import annotations

import asyncio
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
    metric_value,
    null_vector,
    vector_bytes,
)
from tests.stall_detector import StallDetector
from tests.users import users_are_on
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def refusal(gateway: GatewayProcess) -> tuple[int, str, bool]:
    """Sends a request; returns the status, the error code ("" for 200), and whether it has a Retry-After header."""
    answer = gateway.embed({"text": "a"}, x_timeout_ms="400")
    code = error_of(answer)["code"] if answer.status_code != 200 else ""
    return answer.status_code, code, "retry-after" in answer.headers


async def test_requests_to_a_queue_without_workers_are_refused(cluster: GatewayCluster) -> None:
    """Requests to a queue that never had a worker get a 503 at once; /readyz names the worker, and /livez is 200."""
    gateway = await cluster.start_gateway()
    assert await asyncio.to_thread(refusal, gateway) == (503, "no_worker", True), "a 504 at the deadline instead"
    assert gateway.missing() == ["worker"]
    for base in (gateway.url, gateway.admin):
        assert plain_http.get(f"{base}/livez").status_code == 200
        assert plain_http.get(f"{base}/readyz").json() == {"status": "unavailable", "missing": ["worker"]}
        assert plain_http.get(f"{base}/readyz?exclude=worker").json() == {"status": "ok"}


async def test_the_restart_of_the_last_worker_fails_no_request(cluster: GatewayCluster) -> None:
    """After the last worker has stopped, requests are still accepted, and the next worker serves them."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert await worker.stop() == 0
    await wait_until(lambda: gateway.missing() == ["worker"], "the gateway sees that the worker has stopped")
    sent = asyncio.create_task(asyncio.to_thread(gateway.embed, {"text": "a", "timeout_ms": 50_000}))
    await cluster.start_worker()
    answer = await sent
    assert vector_bytes(answer.json()["embedding"]) == null_vector("a")


async def test_requests_are_refused_after_the_worker_grace(cluster: GatewayCluster) -> None:
    """If no worker replaces the last one within worker_grace_s, requests are refused."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(worker_grace_s=1), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    await worker.stop()
    await wait_until(lambda: refusal(gateway) == (503, "no_worker", True), "requests are refused", poll_s=0.1)


async def test_requests_are_refused_after_the_redis_grace(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Within redis_grace_s requests wait for Redis; later ones get a 503 at once. The waiting ones are served."""
    grace_s = 3.0
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(redis_grace_s=grace_s), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    own_redis.stop()
    start = time.monotonic()
    patient = asyncio.create_task(gateway.send(client, "patient", x_timeout_ms="60000"))
    assert await asyncio.to_thread(refusal, gateway) == (503, "redis_unreachable", True)
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is unreachable")
    await wait_until(lambda: time.monotonic() - start > grace_s + 0.5, "the grace is over")
    times_s = []
    for _ in range(20):
        sent_at = time.monotonic()
        answer = await gateway.send(client, "a", x_timeout_ms="60000")
        times_s.append(time.monotonic() - sent_at)
        assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    sys.stdout.write(
        f"refused after {statistics.median(times_s) * 1000:.1f} ms, at most {max(times_s) * 1000:.1f} ms\n"
    )
    assert statistics.median(times_s) < grace_s / 3, "they waited for Redis"
    assert plain_http.get(f"{gateway.url}/livez").status_code == 200
    console = plain_http.get(f"{gateway.url}/console/state")
    assert (console.status_code, console.json()["queues"]) == (200, [])
    assert [each["shard"] for each in console.json()["problems"]] == [0]
    assert error_of(plain_http.get(f"{gateway.url}/console/tenants"))["code"] == "redis_unreachable"
    (history,) = plain_http.get(f"{gateway.url}/console/history").json()["queues"]
    assert (history["requests_per_s"][-1], history["failed"][-1]) == (None, None)
    assert history["requests_per_s"][0] is not None
    assert not patient.done()
    own_redis.start()
    assert vector_bytes((await patient).json()["embedding"]) == null_vector("patient")
    await wait_until(lambda: refusal(gateway)[0] == 200, "requests are served again", poll_s=0.05)


async def test_metrics_of_redis_expire_while_it_is_unreachable(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis
) -> None:
    """For some seconds the metrics show the last state; then no workers and no memory, until Redis is back."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker())
    memory = "redbatch_redis_memory_bytes"

    def shows(metric: str) -> bool:
        return f"{metric}{{" in plain_http.get(f"{gateway.admin}/metrics").text

    def shows_the_fleet() -> bool:
        return shows("redbatch_workers")

    def shows_the_last_state() -> bool:
        page = plain_http.get(f"{gateway.admin}/metrics").text
        return metric_value(page, "redbatch_redis_up") == 0 and "redbatch_workers{" in page

    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 1, "it shows the worker")
    assert gateway.metric(memory) > 0
    assert shows("redbatch_shard_workers")
    own_redis.stop()
    await wait_until(shows_the_last_state, "it shows that Redis is unreachable, and the fleet")
    await wait_until(lambda: not shows_the_fleet(), "it shows no workers", poll_s=0.1)
    assert not shows("redbatch_shard_workers")
    assert not shows(memory)
    own_redis.start()
    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 1, "it shows the worker again")
    assert gateway.metric(memory) > 0


async def test_a_request_shorter_than_the_outage_is_refused_at_once(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Even within the grace, a request whose timeout is shorter than the outage so far gets a 503 at once."""
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(redis_grace_s=60), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    own_redis.stop()
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is unreachable")
    outage_start = time.monotonic()
    await wait_until(lambda: time.monotonic() - outage_start > 3.1, "the outage has lasted 3.1 s")
    sent_at = time.monotonic()
    with StallDetector() as stalls:
        answer = await gateway.send(client, "a", x_timeout_ms="3000")
    assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    assert time.monotonic() - sent_at < 2.5 + stalls.longest_s
    patient = asyncio.create_task(gateway.send(client, "patient", x_timeout_ms="60000"))
    own_redis.start()
    assert vector_bytes((await patient).json()["embedding"]) == null_vector("patient")


async def test_a_request_that_redis_did_not_accept_is_a_503(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """If Redis hangs (it accepts connections and answers nothing), a request that it never accepted may be repeated."""
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(redis_timeout_s=30), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        answer = await gateway.send(client, "a", x_timeout_ms="3500")
        assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
        assert "retry-after" in answer.headers
        await wait_until(lambda: gateway.metric("redbatch_redis_up") == 0, "the metric says so")  # once a second
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    await wait_until(lambda: refusal(gateway)[0] == 200, "requests are served again", poll_s=0.05)


async def test_an_outage_that_ends_with_a_refusal_goes_on(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """If Redis is back but forbids scripts, requests get 503 or wait; once they are allowed again, they are served."""
    gateway, worker = await asyncio.gather(
        isolated_cluster.start_gateway(redis_grace_s=60), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:
        await raw.replicaof("127.0.0.1", "1")
        sent = asyncio.create_task(gateway.send(client, "a"))
        await wait_until(lambda: gateway.missing() == ["redis"], "the submit is repeated")
        user = "gateway" if users_are_on() else "default"
        await raw.execute_command("ACL", "SETUSER", user, "-@scripting")
        await raw.replicaof("NO", "ONE")
        await wait_until(lambda: bool(gateway.program.log_records("Redis fails on a submit")), "a submit is refused")
        assert await asyncio.to_thread(refusal, gateway) == (503, "redis_unreachable", True)
        assert not sent.done()
        await raw.execute_command("ACL", "SETUSER", user, "+@scripting")
        await raw.execute_command("ACL", "LOG", "RESET")
    assert (await sent).status_code == 200
    assert worker.running
    await wait_until(lambda: refusal(gateway)[0] == 200, "requests are served again", poll_s=0.05)


async def test_a_gateway_starts_without_redis(isolated_cluster: GatewayCluster, own_redis: LocalRedis) -> None:
    """A gateway that starts without Redis reports it in /readyz, and serves once Redis is there."""
    own_redis.stop()
    gateway = await isolated_cluster.start_gateway()
    assert gateway.missing() == ["redis"]
    own_redis.start()
    await asyncio.gather(
        isolated_cluster.start_worker(), wait_until(lambda: gateway.missing() != ["redis"], "Redis is there")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees both")
    assert gateway.embed({"text": "a"}).status_code == 200


async def test_requests_survive_a_restart_of_redis_without_its_data(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, client: httpx.AsyncClient
) -> None:
    """Requests that are running, waiting or arriving while Redis restarts empty all get their own vectors."""
    model = "simulated:base_ms=300,item_ms=0"
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(), isolated_cluster.start_worker(model, max_batch_size=4)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    texts = [f"text {i}" for i in range(24)]
    sent = [asyncio.create_task(gateway.send(client, text, x_timeout_ms="20000")) for text in texts[:16]]
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as raw:

        async def has_claimed() -> bool:
            return int((await raw.xpending(isolated_cluster.keys.lanes[0], "workers"))["pending"]) >= 4

        await wait_until(has_claimed, "the worker has claimed a batch")
    own_redis.stop()
    sent += [asyncio.create_task(gateway.send(client, text, x_timeout_ms="20000")) for text in texts[16:]]
    own_redis.start()
    answers = await asyncio.gather(*sent)
    assert [each.status_code for each in answers] == [200] * 24
    assert [vector_bytes(each.json()["embedding"]) for each in answers] == [null_vector(text) for text in texts]


async def test_workers_do_not_count_as_gone_after_a_loss_of_data(
    cluster: GatewayCluster, client: httpx.AsyncClient, raw: redis.asyncio.Redis
) -> None:
    """After FLUSHALL the gateway keeps its knowledge of the workers, so it refuses no request meanwhile."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    until = time.monotonic() + 2.5
    statuses = set()
    await raw.flushall()
    while time.monotonic() < until:
        statuses.add((await gateway.send(client, "a")).status_code)
    assert statuses == {200}
