"""The cache of a gateway: vectors that were computed before are answered without a worker."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable, Sequence
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
    processes = await asyncio.gather(*(cluster.start_gateway(**CACHE, **settings) for _ in range(gateways)))
    for each in processes:
        await wait_until(lambda each=each: each.missing() == [], "a gateway sees the worker")  # type: ignore[misc]
    return processes, worker


def num_inputs_run(worker: Program) -> float:
    """Returns the number of inputs that the model has run."""
    return metric(worker, "redbatch_inputs_total")


def post_openai(gateway: GatewayProcess, texts: Sequence[str], **more: Any) -> httpx.Response:  # noqa: ANN401
    """Sends a request to /v1/embeddings, as OpenAI's clients do."""
    model = plain_http.get(f"{gateway.url}/v1/models").json()["data"][0]["id"]
    body = {"model": model, "input": list(texts), **more}
    return plain_http.post(f"{gateway.url}/v1/embeddings", json=body, timeout=30)


async def wait_until_cached(gateway: GatewayProcess, texts: Sequence[str]) -> None:
    """Waits until all of these texts are answered from the cache, which is written after the answer."""

    def all_hit() -> bool:
        before = gateway.metric("redbatch_cache_hits_total")
        gateway.embed({"texts": list(texts)})
        return gateway.metric("redbatch_cache_hits_total") == before + len(texts)

    await wait_until(all_hit, "the vectors are cached")


async def wait_until_run(worker: Program, number: int, send: Callable[[], object]) -> None:
    """Sends requests until one makes the model run exactly this number of inputs.

    Of those before, the look-up took longer than its maximum, as on a busy machine: all of their vectors are computed.
    """

    def is_exact() -> bool:
        before = num_inputs_run(worker)
        send()
        return num_inputs_run(worker) == before + number

    await wait_until(is_exact, f"{number} inputs are run")


@pytest.mark.timeout(60)
async def test_cached_vectors_are_not_computed_again(isolated_cluster: GatewayCluster) -> None:
    """Cached vectors serve all gateways, bit for bit, in their place among new ones, and with the same usage."""
    (one, other), worker = await start(isolated_cluster, gateways=2)
    letters, pair, mixed = iter(string.ascii_letters), list[str](), list[str]()

    async def has_cached() -> bool:
        pair[:] = first, second = next(letters), next(letters)
        assert has_vectors(one.embed({"texts": pair}), pair)
        await wait_until_cached(one, pair)
        before = num_inputs_run(worker)
        assert has_vectors(other.embed({"texts": [second, first, second]}), [second, first, second])
        return num_inputs_run(worker) == before

    def send_mixed() -> None:
        mixed[:] = [next(letters), pair[0], next(letters), pair[1], next(letters)]
        assert has_vectors(other.embed({"texts": mixed}), mixed)

    await wait_until(has_cached, "both are found, which a look-up that takes too long does not")
    await wait_until_run(worker, 3, send_mixed)
    assert vector_bytes(one.embed({"text": pair[0]}).json()["embedding"]) == null_vector(pair[0])
    await wait_until_cached(other, mixed)
    assert post_openai(other, mixed).json()["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


@pytest.mark.timeout(60)
async def test_other_options_are_other_vectors(isolated_cluster: GatewayCluster) -> None:
    """The same text with other options, and token ids with the same bytes, are cached separately."""
    (gateway,), worker = await start(isolated_cluster)

    def send_all() -> None:
        lengths = {
            len(post_openai(gateway, ["a"], **more).json()["data"][0]["embedding"])
            for more in ({}, {"dimensions": 8}, {"dimensions": 16})
        }
        assert lengths == {384, 8, 16}
        post_openai(gateway, ["abcd"])
        answer = plain_http.post(f"{gateway.url}/embed", json={"inputs": [0x64636261], "normalize": True})
        assert answer.status_code == 200

    before = num_inputs_run(worker)
    send_all()
    assert num_inputs_run(worker) == before + 5
    await wait_until_run(worker, 0, send_all)


@pytest.mark.timeout(60)
async def test_the_default_of_an_option_is_the_value_that_it_stands_for(isolated_cluster: GatewayCluster) -> None:
    """The null model does not normalize, as its worker reports: that and no option are the same vectors."""
    [gateway], worker = await start(isolated_cluster)
    letters = iter(string.ascii_letters)

    async def are_the_same() -> bool:
        text = next(letters)
        await wait_until_cached(gateway, [text])
        before = num_inputs_run(worker)
        batch_size = gateway.embed({"text": text, "normalize": False}).headers["x-batch-size"]
        assert post_openai(gateway, [text], normalize=False).json()["usage"]["total_tokens"]
        return batch_size == "0" and num_inputs_run(worker) == before

    await wait_until(are_the_same, "both are found, which a look-up that takes too long does not")
    assert gateway.embed({"text": "a", "normalize": True}).headers["x-batch-size"] == "1"


@pytest.mark.timeout(60)
async def test_failing_inputs_do_not_affect_cached_ones(
    isolated_cluster: GatewayCluster,
) -> None:
    """If an input of a request fails, the cached and the computed vectors of the others are in their places."""
    (gateway,), _ = await start(isolated_cluster)
    await wait_until_cached(gateway, ["a", "b"])
    answer = gateway.embed({"texts": ["a", "", "c", "b"], "on_error": "null"}).json()
    assert [each and vector_bytes(each) for each in answer["embeddings"]] == [
        null_vector("a"),
        None,
        null_vector("c"),
        null_vector("b"),
    ]


@pytest.mark.timeout(90)
async def test_a_lost_cache_is_computed_again(isolated_cluster: GatewayCluster, own_redis: LocalRedis) -> None:
    """After a restart of Redis, which empties the cache, requests are computed again."""
    (gateway,), worker = await start(isolated_cluster)
    await wait_until_cached(gateway, ["a"])
    own_redis.stop()
    own_redis.start()
    before = num_inputs_run(worker)
    await wait_until(lambda: gateway.missing() == [], "the gateway is ready again", timeout_s=20)
    assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    assert num_inputs_run(worker) > before


@pytest.mark.timeout(60)
async def test_the_cache_is_off_by_default(cluster: GatewayCluster) -> None:
    """By default each request is computed, and no cache misses are counted."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    for _ in range(2):
        assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    assert num_inputs_run(worker) == 2
    assert gateway.metric("redbatch_cache_misses_total") == 0


def as_tenant(gateway: GatewayProcess, name: str, *texts: str) -> httpx.Response:
    """Sends texts as a tenant."""
    return plain_http.post(f"{gateway.url}/embed", json={"texts": texts}, headers={"x-tenant": name}, timeout=30)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("count", [True, False])
async def test_hits_beside_new_texts_count_against_quotas_if_set(isolated_cluster: GatewayCluster, count: bool) -> None:
    """What is cached of a request counts too if the rest was computed: with its 20 tokens used, a tenant gets a 429.

    tests/chaos/test_shared_cache.py has requests of which everything is cached.
    """
    limits = {"tenant_tokens_per_s": 1, "tenant_burst_tokens": 20}
    (gateway,), _ = await start(isolated_cluster, cache_hits_count=count, **limits)
    texts = [f"text {i}" for i in range(4)]  # of two tokens each
    await wait_until(lambda: as_tenant(gateway, "warm", "text 0").headers.get("x-batch-size") == "0", "one is cached")
    for number, text in enumerate(texts):
        await wait_until(
            lambda text=text, number=number: (
                as_tenant(gateway, f"warm-{number}", text).headers.get("x-batch-size")  # type: ignore[misc]
                == "0"
            ),
            "all are cached",
        )
    assert as_tenant(gateway, "b", *texts, "new").status_code == 200
    assert (429 in [as_tenant(gateway, "b", *texts).status_code for _ in range(4)]) == count
    assert as_tenant(gateway, "c", *texts).status_code == 200, "the quota of another tenant"
