"""A gateway that remembers: what was computed once is answered without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from redbatch.up.local_redis import LocalRedis
from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    has_vectors,
    metric,
    null_vector,
    vector_bytes,
)
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything, pytest.mark.slow]

CACHE = {"cache_bytes": 10_000_000}


async def start(cluster: GatewayCluster, gateways: int = 1, **settings: Any) -> tuple[list[GatewayProcess], Program]:  # noqa: ANN401
    """Starts gateways with a cache, and a worker."""
    worker = await cluster.start_worker()
    served = await asyncio.gather(*(cluster.start_gateway(**CACHE, **settings) for _ in range(gateways)))
    for each in served:
        await wait_until(lambda each=each: each.missing() == [], "a gateway sees the worker")  # type: ignore[misc]
    return served, worker


def ran(worker: Program) -> float:
    """Returns how many inputs the model has run."""
    return metric(worker, "redbatch_inputs_total")


def openai(gateway: GatewayProcess, texts: Sequence[str], **more: Any) -> httpx.Response:  # noqa: ANN401
    """Asks as OpenAI's clients do."""
    model = plain_http.get(f"{gateway.url}/v1/models").json()["data"][0]["id"]
    body = {"model": model, "input": list(texts), **more}
    return plain_http.post(f"{gateway.url}/v1/embeddings", json=body, timeout=30)


async def kept(gateway: GatewayProcess, texts: Sequence[str]) -> None:
    """Waits until all of these come from the cache: it is written behind the answer."""

    def all_hit() -> bool:
        before = gateway.metric("redbatch_cache_hits_total")
        gateway.embed({"texts": list(texts)})
        return gateway.metric("redbatch_cache_hits_total") == before + len(texts)

    await wait_until(all_hit, "it is kept")


@pytest.mark.timeout(60)
async def test_what_was_computed_is_not_computed_again(isolated_cluster: GatewayCluster) -> None:
    """By any gateway, to the last bit; beside what was not, at its place; with the same usage."""
    (one, other), worker = await start(isolated_cluster, gateways=2)
    assert has_vectors(one.embed({"texts": ["a", "b"]}), ["a", "b"])
    await kept(one, ["a", "b"])
    before = ran(worker)
    assert has_vectors(other.embed({"texts": ["b", "a", "b"]}), ["b", "a", "b"])
    assert ran(worker) == before
    mixed = ["c", "a", "d", "b", "e"]
    answer = other.embed({"texts": mixed})
    assert has_vectors(answer, mixed)
    assert ran(worker) == before + 3
    assert vector_bytes(one.embed({"text": "a"}).json()["embedding"]) == null_vector("a")
    await kept(other, mixed)
    assert openai(other, mixed).json()["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


@pytest.mark.timeout(60)
async def test_other_options_are_other_vectors(isolated_cluster: GatewayCluster) -> None:
    """Of the same text, and so are token ids of the same bytes."""
    (gateway,), worker = await start(isolated_cluster)
    for round_ in range(2):
        before = ran(worker)
        lengths = {
            len(openai(gateway, ["a"], **more).json()["data"][0]["embedding"])
            for more in ({}, {"dimensions": 8}, {"dimensions": 16})
        }
        assert lengths == {384, 8, 16}
        openai(gateway, ["abcd"])
        answer = plain_http.post(f"{gateway.url}/embed", json={"inputs": [0x64636261], "normalize": True})
        assert answer.status_code == 200
        if round_ == 0:
            assert ran(worker) == before + 5
            await asyncio.sleep(0.5)
        else:
            assert ran(worker) == before


@pytest.mark.timeout(60)
async def test_a_request_with_inputs_that_fail_is_answered_beside_what_is_known(
    isolated_cluster: GatewayCluster,
) -> None:
    """The rest is computed, and keeps its place."""
    (gateway,), _ = await start(isolated_cluster)
    await kept(gateway, ["a", "b"])
    answer = gateway.embed({"texts": ["a", "", "c", "b"], "on_error": "null"}).json()
    assert [each and vector_bytes(each) for each in answer["embeddings"]] == [
        null_vector("a"),
        None,
        null_vector("c"),
        null_vector("b"),
    ]


@pytest.mark.timeout(90)
async def test_without_its_data_it_computes(isolated_cluster: GatewayCluster, own_redis: LocalRedis) -> None:
    """A restart of Redis loses the cache, and nothing else."""
    (gateway,), worker = await start(isolated_cluster)
    await kept(gateway, ["a"])
    own_redis.stop()
    own_redis.start()
    before = ran(worker)
    await wait_until(lambda: gateway.missing() == [], "all is well again", timeout_s=20)
    assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    assert ran(worker) > before


@pytest.mark.timeout(60)
async def test_it_is_off_by_default(cluster: GatewayCluster) -> None:
    """Nothing is kept, nothing is counted."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    for _ in range(2):
        assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    assert ran(worker) == 2
    assert gateway.metric("redbatch_cache_misses_total") == 0
