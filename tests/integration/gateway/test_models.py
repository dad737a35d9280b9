"""Several models behind one URL, and several revisions of one."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import httpx
import numpy as np
import pytest
import redis.asyncio

from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    REPEATS,
    GatewayCluster,
    GatewayProcess,
    error_of,
    has_vectors,
    vector_bytes,
)
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.leaves_anything, pytest.mark.timeout(90)]

OTHER = "simulated:base_ms=1,item_ms=0,revision=other"
OLD, NEW = (f"simulated:base_ms=20,item_ms=0.2,revision={each}" for each in ("old", "new"))


def salted(revision: str, text: str) -> bytes:
    """Returns the vector of a text that a simulated model of a revision makes, as raw float32."""
    digest = np.frombuffer(sha256((revision + text).encode()).digest(), dtype=np.uint8)
    return np.tile(digest.astype("<f4") / np.float32(255), REPEATS).tobytes()


def revision_of(answer: httpx.Response, texts: list[str]) -> set[str]:
    """Returns the revisions that an answer's vectors are of."""
    assert answer.status_code == 200, answer.text
    names = {salted(name, text): name for text in texts for name in ("old", "new")}
    return {names[vector_bytes(each)] for each in answer.json()["embeddings"]}


def served(gateway: GatewayProcess) -> list[str]:
    """Returns the models that a gateway lists."""
    return [each["id"] for each in plain_http.get(f"{gateway.url}/v1/models").json()["data"]]


async def two_models(cluster: GatewayCluster) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and workers of two models; returns it and the worker of the one that is not its own."""
    gateway, _, other = await asyncio.gather(
        cluster.start_gateway(all_queues=True), cluster.start_worker(), cluster.start_worker(OTHER, queue="other")
    )
    for name in (cluster.queue, "other"):
        await wait_until(lambda name=name: gateway.ready_workers(name) == 1, f"{name} is ready")  # type: ignore[misc]
    assert sorted(served(gateway)) == sorted([cluster.queue, "other"])
    return gateway, other


async def test_a_request_goes_to_the_model_that_it_names(isolated_cluster: GatewayCluster) -> None:
    """In a field or a header, by the queue's name or by the model's own; without a name to the gateway's own."""
    gateway, _ = await two_models(isolated_cluster)
    assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    assert has_vectors(gateway.embed({"texts": ["a"], "model": "null"}), ["a"])
    for answer in (
        gateway.embed({"texts": ["a"], "model": "other"}),
        gateway.embed({"texts": ["a"], "model": OTHER}),
        gateway.embed({"texts": ["a"]}, x_model="other"),
    ):
        assert [vector_bytes(each) for each in answer.json()["embeddings"]] == [salted("other", "a")]
    body: dict[str, Any] = {"input": "a", "model": "other", "normalize": False}
    told = plain_http.post(f"{gateway.url}/v1/embeddings", json=body).json()
    assert (told["model"], vector_bytes(told["data"][0]["embedding"])) == ("other", salted("other", "a"))
    inputs = {"inputs": "a", "normalize": False}
    answer = plain_http.post(f"{gateway.url}/embed", json=inputs, headers={"x-model": "other"})
    assert vector_bytes(answer.json()[0]) == salted("other", "a")
    info = plain_http.get(f"{gateway.url}/info", headers={"x-model": "other"}).json()
    assert (info["model_id"], info["served_model_name"]) == (OTHER, "other")
    assert plain_http.get(f"{gateway.url}/info").json()["model_id"] == "null"


async def test_an_unknown_model_is_told_with_those_that_there_are(isolated_cluster: GatewayCluster) -> None:
    """In the words of whoever asks."""
    gateway, _ = await two_models(isolated_cluster)
    answer = gateway.embed({"text": "a", "model": "none"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
    assert f"Served: {isolated_cluster.queue}, other." in error_of(answer)["message"]
    tei = plain_http.post(f"{gateway.url}/embed", json={"inputs": "a"}, headers={"x-model": "none"})
    assert (tei.status_code, tei.json()["error_type"]) == (404, "Validation")
    openai = plain_http.post(f"{gateway.url}/v1/embeddings", json={"input": "a", "model": "none"})
    assert (openai.status_code, openai.json()["error"]["param"]) == (404, "model")
    assert plain_http.get(f"{gateway.url}/info", headers={"x-model": "none"}).status_code == 404


async def test_before_a_worker_was_seen_no_model_is_taken_for_another(isolated_cluster: GatewayCluster) -> None:
    """By its name a request may be for this gateway's own queue; any other is told to come again."""
    gateway = await isolated_cluster.start_gateway(all_queues=True)
    answer = gateway.embed({"text": "a", "model": "sentence-transformers/any"})
    assert (answer.status_code, error_of(answer)["code"]) == (503, "no_worker")
    assert int(answer.headers["retry-after-ms"]) > 0
    assert gateway.errors("no_worker") == 1, "of no queue that is known"
    assert plain_http.get(f"{gateway.url}/v1/models/any").status_code == 404
    assert plain_http.get(f"{gateway.url}/info", headers={"x-model": "any"}).status_code == 503
    slow = "simulated:base_ms=1,item_ms=0"
    await isolated_cluster.start_worker(slow)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert gateway.embed({"text": "a", "model": slow}).status_code == 200


async def test_models_come_and_go(isolated_cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """What nobody serves any more is not listed; requests for it wait for a worker, then hear that there is none.

    A gateway is ready while any model is served, and knows them all again after Redis has lost everything.
    """
    gateway, other = await two_models(isolated_cluster)
    async with redis.asyncio.Redis.from_url(isolated_cluster.redis_url, protocol=2) as raw:
        await raw.flushall()
    for _ in range(20):
        answer = await gateway.send(client, "a", x_model="other")
        assert (answer.status_code, vector_bytes(answer.json()["embedding"])) == (200, salted("other", "a"))
        await asyncio.sleep(0.1)
    assert await other.stop() == 0
    await wait_until(lambda: served(gateway) == [isolated_cluster.queue], "it is not listed")
    waiting = asyncio.create_task(gateway.send(client, "b", x_model="other", x_timeout_ms="60000"))
    await asyncio.sleep(0.2)
    await isolated_cluster.start_worker(OTHER, queue="other")
    answer = await waiting
    assert (answer.status_code, vector_bytes(answer.json()["embedding"])) == (200, salted("other", "b"))
    assert gateway.missing() == []


async def test_a_gateway_may_keep_to_its_own_queue(isolated_cluster: GatewayCluster) -> None:
    """With all_queues off it knows of no other."""
    gateway, _, _ = await asyncio.gather(
        isolated_cluster.start_gateway(),
        isolated_cluster.start_worker(),
        isolated_cluster.start_worker(OTHER, queue="other"),
    )
    await wait_until(lambda: gateway.missing() == [], "it sees its worker")
    await asyncio.sleep(1.5)
    assert served(gateway) == [isolated_cluster.queue]
    assert gateway.embed({"text": "a", "model": "other"}).status_code == 404


@pytest.mark.parametrize("texts", [1, 200])
async def test_a_new_revision_comes_without_a_failed_request(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient, texts: int
) -> None:
    """Workers of both live at once, then the old one leaves. No request fails, and none has vectors of both.

    One of 200 texts has seven entries, which both may run.
    """
    gateway, old = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker(OLD))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    seen: list[set[str]] = []
    done = asyncio.Event()

    async def ask(name: int) -> None:
        number = 0
        while not done.is_set():
            number += 1
            sent = [f"{name} {number} {i}" for i in range(texts)]
            answer = await client.post(f"{gateway.url}/embed", json={"texts": sent}, headers={"x-timeout-ms": "30000"})
            seen.append(revision_of(answer, sent))

    asking = [asyncio.create_task(ask(name)) for name in range(4)]
    await wait_until(lambda: len(seen) > 4, "requests are answered")
    await isolated_cluster.start_worker(NEW)
    before = len(seen)
    await wait_until(lambda: len(seen) > before + 20, "both serve", timeout_s=30)
    assert await old.stop() == 0
    before = len(seen)
    await wait_until(lambda: len(seen) > before + 8, "the new one serves", timeout_s=30)
    done.set()
    await asyncio.gather(*asking)
    assert all(len(each) == 1 for each in seen)
    assert (seen[0], seen[-1]) == ({"old"}, {"new"})
    both = gateway.metric("redbatch_mixed_entries_total")
    assert both == 0 if texts == 1 else both > 0


async def test_what_is_for_a_revision_that_is_gone_runs_again(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """A worker dies with part of a request while the rest of it is done by one of another revision."""
    gateway, old, _ = await asyncio.gather(
        isolated_cluster.start_gateway(),
        isolated_cluster.start_worker(OLD, max_batch_size=16),
        isolated_cluster.start_worker(NEW, max_batch_size=16),
    )
    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 2, "the gateway sees both")
    texts = [f"text {i}" for i in range(800)]
    body = {"texts": texts, "timeout_ms": 60_000}
    asking = asyncio.create_task(client.post(f"{gateway.url}/embed", json=body))
    await wait_until(lambda: gateway.metric("redbatch_mixed_entries_total") > 0, "both have run part of it")
    old.kill()
    answer = await asking
    assert revision_of(answer, texts) in ({"old"}, {"new"})


async def test_a_request_that_is_half_in_the_cache_is_not_mixed(isolated_cluster: GatewayCluster) -> None:
    """Half of it was computed by a revision that is gone since."""
    gateway, old = await asyncio.gather(
        isolated_cluster.start_gateway(cache_bytes=10_000_000), isolated_cluster.start_worker(OLD)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    def kept() -> bool:
        gateway.embed({"texts": ["a"]})
        return gateway.metric("redbatch_cache_hits_total") > 0

    await wait_until(kept, "it is kept")
    old.kill()
    await isolated_cluster.start_worker(NEW)
    assert revision_of(gateway.embed({"texts": ["a", "b"]}), ["a", "b"]) == {"new"}
