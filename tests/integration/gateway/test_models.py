"""Several models behind one URL, and several revisions of one model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio

from gpuworker.model_spec import parse_model
from shared.process.tasks import cancel_and_wait
from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    has_vectors,
    vector_bytes,
)
from tests.processes import Program
from tests.revisions import revision_vector, revisions_in
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.leaves_anything, pytest.mark.timeout(90)]

ROOT = Path(__file__).parents[3]
ECHO = "tests.integration.functions.function_models:Echo"
OTHER = "simulated:base_ms=1,item_ms=0,revision=other"
OLD, NEW = (f"simulated:base_ms=20,item_ms=0.2,revision={each}" for each in ("old", "new"))


def revision_of(answer: httpx.Response, texts: list[str]) -> set[str]:
    """Returns the revisions whose vectors an answer contains."""
    assert answer.status_code == 200, answer.text
    return revisions_in(answer.json()["embeddings"], texts)


def listed_models(gateway: GatewayProcess) -> list[str]:
    """Returns the ids of the models that a gateway lists."""
    return [each["id"] for each in plain_http.get(f"{gateway.url}/v1/models").json()["data"]]


async def two_models(cluster: GatewayCluster) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and workers of two models; returns it and the worker of the model `other`."""
    gateway, _, other = await asyncio.gather(
        cluster.start_gateway(all_queues=True), cluster.start_worker(), cluster.start_worker(OTHER, queue="other")
    )
    for name in (cluster.queue, "other"):
        await wait_until(lambda name=name: gateway.ready_workers(name) == 1, f"{name} is ready")  # type: ignore[misc]
    assert sorted(listed_models(gateway)) == sorted([cluster.queue, "other"])
    return gateway, other


async def test_a_request_selects_its_model(isolated_cluster: GatewayCluster) -> None:
    """A field or a header selects the model by its queue's or its own name; the default is the gateway's own queue."""
    gateway, _ = await two_models(isolated_cluster)
    assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
    assert has_vectors(gateway.embed({"texts": ["a"], "model": "null"}), ["a"])
    for answer in (
        gateway.embed({"texts": ["a"], "model": "other"}),
        gateway.embed({"texts": ["a"], "model": OTHER}),
        gateway.embed({"texts": ["a"]}, x_model="other"),
    ):
        assert [vector_bytes(each) for each in answer.json()["embeddings"]] == [revision_vector("other", "a")]
    body: dict[str, Any] = {"input": "a", "model": "other", "normalize": False}
    content = plain_http.post(f"{gateway.url}/v1/embeddings", json=body).json()
    assert (content["model"], vector_bytes(content["data"][0]["embedding"])) == ("other", revision_vector("other", "a"))
    inputs = {"inputs": "a", "normalize": False}
    answer = plain_http.post(f"{gateway.url}/embed", json=inputs, headers={"x-model": "other"})
    assert vector_bytes(answer.json()[0]) == revision_vector("other", "a")
    info = plain_http.get(f"{gateway.url}/info", headers={"x-model": "other"}).json()
    assert (info["model_id"], info["served_model_name"]) == (OTHER, "other")
    assert plain_http.get(f"{gateway.url}/info").json()["model_id"] == "null"


async def test_an_unknown_model_is_an_error_that_lists_the_known_ones(isolated_cluster: GatewayCluster) -> None:
    """An unknown model gets a 404 in the client's dialect; the message lists the served models."""
    gateway, _ = await two_models(isolated_cluster)
    answer = gateway.embed({"text": "a", "model": "none"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
    assert f"Served: {isolated_cluster.queue} (null), other ({OTHER})." in error_of(answer)["message"]
    tei = plain_http.post(f"{gateway.url}/embed", json={"inputs": "a"}, headers={"x-model": "none"})
    assert (tei.status_code, tei.json()["error_type"]) == (404, "Validation")
    openai = plain_http.post(f"{gateway.url}/v1/embeddings", json={"input": "a", "model": "none"})
    assert (openai.status_code, openai.json()["error"]["param"]) == (404, "model")
    assert plain_http.get(f"{gateway.url}/info", headers={"x-model": "none"}).status_code == 404


async def test_an_operation_of_another_model_is_refused_with_its_name(isolated_cluster: GatewayCluster) -> None:
    """Without a name, a function's inputs go to the gateway's own model: the error has the models that take them."""
    isolated_cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, *_ = await asyncio.gather(
        isolated_cluster.start_gateway(all_queues=True),
        isolated_cluster.start_worker(),
        isolated_cluster.start_worker(ECHO, queue="echo"),
    )
    await wait_until(lambda: gateway.ready_workers("echo") == 1 and gateway.missing() == [], "both are ready")
    for path, headers in (("/predict", {}), ("/predict", {"prefer": "respond-async"}), ("/jobs", {})):
        answer = plain_http.post(f"{gateway.url}{path}", json={"inputs": [1]}, headers=headers)
        assert answer.status_code == 400
        assert error_of(answer)["message"] == (
            f"The model of queue {isolated_cluster.queue} does not offer predict; these do: echo. "
            "Name one in the field `model`, or in the header X-Model. "
            f"{isolated_cluster.queue} offers: embed, embed_all, tokenize, decode."
        )
    assert plain_http.post(f"{gateway.url}/predict", json={"input": 1, "model": "echo"}).status_code == 200
    answer = gateway.embed({"text": "a", "model": "echo"})
    assert f"does not offer embed; these do: {isolated_cluster.queue}." in error_of(answer)["message"]


async def test_a_folder_has_each_of_its_names(isolated_cluster: GatewayCluster, tmp_path: Path) -> None:
    """The queue's, in which other characters are dashes; the folder's, as errors list it; and that in lower case."""
    folder = tmp_path / "My Model"
    folder.symlink_to(parse_model("minilm").path)
    gateway, *_ = await asyncio.gather(
        isolated_cluster.start_gateway(all_queues=True),
        isolated_cluster.start_worker(),
        isolated_cluster.start_worker(str(folder), queue="my-model"),
    )
    await wait_until(lambda: gateway.ready_workers("my-model") == 1, "the folder is served", timeout_s=60)
    for name in ("my-model", "My Model", "my model", str(folder)):
        assert gateway.embed({"text": "a", "model": name}).status_code == 200, name
    message = error_of(gateway.embed({"text": "a", "model": "none"}))["message"]
    assert "my-model (My Model)" in message
    assert gateway.embed({"text": "a", "model": "someone/my model"}).status_code == 404


async def test_before_a_worker_is_known_any_model_may_come(isolated_cluster: GatewayCluster) -> None:
    """Before a worker is known, requests for any model get a 503 with a retry time: a worker may serve it later."""
    gateway = await isolated_cluster.start_gateway(all_queues=True)
    answer = gateway.embed({"text": "a", "model": "sentence-transformers/any"})
    assert (answer.status_code, error_of(answer)["code"]) == (503, "no_worker")
    assert int(answer.headers["retry-after-ms"]) > 0
    assert gateway.errors("no_worker") == 1, "the error has a queue"
    assert plain_http.get(f"{gateway.url}/v1/models/any").status_code == 404
    assert plain_http.get(f"{gateway.url}/info", headers={"x-model": "any"}).status_code == 503
    slow = "simulated:base_ms=1,item_ms=0"
    await isolated_cluster.start_worker(slow)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert gateway.embed({"text": "a", "model": slow}).status_code == 200


async def test_the_only_model_serves_requests_that_name_none(isolated_cluster: GatewayCluster) -> None:
    """Without a queue set, requests go to the only model, whatever its queue is called; two gateways agree.

    With a second model they are rejected in the client's dialect, and the message lists the models. Once workers of
    the first model have been away for the grace time, the second one is the only model.
    """
    settings: dict[str, Any] = {"queue": None, "all_queues": True, "worker_grace_s": 2}
    gateways = await asyncio.gather(*(isolated_cluster.start_gateway(**settings) for _ in range(2)))
    assert error_of(gateways[0].embed({"text": "a"}))["code"] == "no_worker"
    first = await isolated_cluster.start_worker(queue="any-name")
    for gateway in gateways:
        await wait_until(lambda gateway=gateway: gateway.missing() == [], "a worker is ready")  # type: ignore[misc]
        assert has_vectors(gateway.embed({"texts": ["a"]}), ["a"])
        info = plain_http.get(f"{gateway.url}/info").json()
        assert (info["model_id"], info["served_model_name"]) == ("null", "any-name")
    await isolated_cluster.start_worker(OTHER, queue="other")
    for gateway in gateways:
        await wait_until(lambda gateway=gateway: gateway.ready_workers("other") == 1, "other is ready")  # type: ignore[misc]
        await wait_until(lambda gateway=gateway: gateway.embed({"text": "a"}).status_code != 200, "both are known")  # type: ignore[misc]
        answer = gateway.embed({"text": "a"})
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (400, "invalid_request")
        assert error["message"] == "Name a model: this cluster serves any-name, other."
        tei = plain_http.post(f"{gateway.url}/embed", json={"inputs": "a"})
        assert (tei.status_code, tei.json()["error_type"]) == (422, "Validation")
        job = plain_http.post(f"{gateway.url}/jobs", json={"texts": ["a"]})
        assert (job.status_code, error_of(job)["code"]) == (400, "invalid_request")
        assert plain_http.get(f"{gateway.url}/info").status_code == 422
        assert has_vectors(gateway.embed({"texts": ["a"], "model": "any-name"}), ["a"])
    await first.stop()
    for gateway in gateways:
        await wait_until(lambda gateway=gateway: gateway.embed({"text": "a"}).status_code == 200, "one is left")  # type: ignore[misc]
        vector = gateway.embed({"text": "a"}).json()["embedding"]
        assert vector_bytes(vector) == revision_vector("other", "a")


async def test_a_gateway_that_starts_before_redis_finds_the_only_model(
    isolated_cluster: GatewayCluster, own_redis: Server
) -> None:
    """Until it does, requests without a model are 503: they can be repeated. They are never said to be ambiguous."""
    own_redis.stop()
    gateway = await isolated_cluster.start_gateway(queue=None, all_queues=True)
    statuses = {gateway.embed({"text": "a"}).status_code}
    own_redis.start()
    await isolated_cluster.start_worker(queue="any-name")

    def is_served() -> bool:
        statuses.add(gateway.embed({"text": "a"}).status_code)
        return 200 in statuses

    await wait_until(is_served, "the only model serves")
    assert statuses == {200, 503}


async def test_models_appear_and_disappear(isolated_cluster: GatewayCluster, client: httpx.AsyncClient) -> None:
    """A model without workers is not listed, and requests for it wait for a worker, which may start again.

    The gateway is ready while any model is served, and knows all models again after Redis has lost all data.
    """
    gateway, other = await two_models(isolated_cluster)
    async with redis.asyncio.Redis.from_url(isolated_cluster.redis_url, protocol=2) as raw:
        await raw.flushall()
    for _ in range(20):
        answer = await gateway.send(client, "a", x_model="other")
        assert (answer.status_code, vector_bytes(answer.json()["embedding"])) == (200, revision_vector("other", "a"))
        await asyncio.sleep(0.1)
    assert await other.stop() == 0
    await wait_until(lambda: listed_models(gateway) == [isolated_cluster.queue], "the model is not listed")
    waiting = asyncio.create_task(gateway.send(client, "b", x_model="other", x_timeout_ms="60000"))
    await asyncio.sleep(0.2)
    await isolated_cluster.start_worker(OTHER, queue="other")
    answer = await waiting
    assert (answer.status_code, vector_bytes(answer.json()["embedding"])) == (200, revision_vector("other", "b"))
    assert gateway.missing() == []


async def test_a_gateway_may_serve_only_its_own_queue(isolated_cluster: GatewayCluster) -> None:
    """With all_queues off, a gateway lists no model of another queue, and refuses requests for it."""
    gateway, _, _ = await asyncio.gather(
        isolated_cluster.start_gateway(),
        isolated_cluster.start_worker(),
        isolated_cluster.start_worker(OTHER, queue="other"),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees its worker")
    await asyncio.sleep(1.5)
    assert listed_models(gateway) == [isolated_cluster.queue]
    assert gateway.embed({"text": "a", "model": "other"}).status_code == 404


async def send_requests(
    gateway: GatewayProcess, client: httpx.AsyncClient, revisions: list[set[str]], name: str, texts: int
) -> None:
    """Sends requests until cancelled; notes in `revisions` whose vectors each answer has."""
    while True:
        sent = [f"{name} {len(revisions)} {i}" for i in range(texts)]
        answer = await client.post(f"{gateway.url}/embed", json={"texts": sent}, headers={"x-timeout-ms": "30000"})
        revisions.append(revision_of(answer, sent))
        assert {answer.headers["x-model-revision"]} == {f"sha256-{each}" for each in revisions[-1]}


async def send_pinned(
    gateway: GatewayProcess, client: httpx.AsyncClient, answers: list[int], fields: dict[str, Any], revision: str
) -> None:
    """Sends requests that are pinned to the old revision until cancelled; notes the statuses in `answers`.

    `revision`: of the header, "" for none.
    """
    headers = {"x-timeout-ms": "30000"} | ({"x-model-revision": revision} if revision else {})
    while True:
        sent = [f"pinned {len(answers)} {i}" for i in range(len(fields["texts"]))]
        answer = await client.post(f"{gateway.url}/embed", json=fields | {"texts": sent}, headers=headers)
        answers.append(answer.status_code)
        if answer.status_code == 200:
            assert revision_of(answer, sent) == {"old"}
        else:
            assert (answer.status_code, error_of(answer)["code"]) == (409, "revision_gone")
            assert "there is sha256-new" in error_of(answer)["message"]


@pytest.mark.parametrize("texts", [1, 200])
async def test_a_new_revision_fails_no_request(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient, texts: int
) -> None:
    """While a worker of a new revision replaces an old one, no request fails or gets vectors of both revisions.

    A request with 200 texts has seven entries, which workers of both may run.
    """
    gateway, old = await asyncio.gather(isolated_cluster.start_gateway(), isolated_cluster.start_worker(OLD))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    revisions: list[set[str]] = []
    pinned: list[int] = []
    senders = [asyncio.create_task(send_requests(gateway, client, revisions, str(name), texts)) for name in range(4)]
    many, revision = {"texts": [""] * texts}, "sha256-old"
    by_name = many | {"model": f"{isolated_cluster.queue}@{revision}"}
    ways = ((many, revision), (by_name, ""))
    senders += [asyncio.create_task(send_pinned(gateway, client, pinned, *each)) for each in ways]
    await wait_until(lambda: len(revisions) > 4, "requests are answered")
    await isolated_cluster.start_worker(NEW)
    before = len(revisions)
    await wait_until(lambda: len(revisions) > before + 20, "both workers serve", timeout_s=30)
    assert await old.stop() == 0
    before = len(revisions)
    await wait_until(lambda: len(revisions) > before + 8, "the new worker serves", timeout_s=30)
    await wait_until(lambda: pinned[-1:] == [409], "requests that are pinned to the old revision are refused")
    assert not any(each.done() for each in senders), "no answer was a wrong one"
    await cancel_and_wait(senders)
    assert all(len(each) == 1 for each in revisions)
    assert (revisions[0], revisions[-1]) == ({"old"}, {"new"})
    assert set(pinned) == {200, 409}
    mixed = gateway.metric("redbatch_mixed_entries_total")
    assert mixed == 0 if texts == 1 else mixed > 0


async def test_scores_of_a_revision(isolated_cluster: GatewayCluster) -> None:
    """A request to rerank is pinned to one as others are, and refused in the words of its route if it is gone."""
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(), isolated_cluster.start_worker("simulated:labels=1,revision=new")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    routes: list[tuple[str, int, dict[str, Any]]] = [
        ("/rerank", 422, {"query": "q", "texts": ["a", "b"]}),  # TEI has no 409
        ("/v1/rerank", 409, {"query": "q", "documents": ["a", "b"]}),
        ("/score", 409, {"text_1": "q", "text_2": ["a", "b"]}),
    ]
    for path, gone, body in routes:
        for revision, status in (("sha256-new", 200), ("sha256-old", gone)):
            pinned = {"x-model-revision": revision}
            named = {"x-model": f"{isolated_cluster.queue}@{revision}"}
            for headers in (pinned, named):
                answer = plain_http.post(gateway.url + path, json=body, headers=headers)
                assert answer.status_code == status, answer.text
                assert answer.headers.get("x-model-revision") == ("sha256-new" if status == 200 else None)
                assert status == 200 or "there is sha256-new" in answer.text


async def test_a_mixed_request_whose_revision_is_gone_runs_again(
    isolated_cluster: GatewayCluster, client: httpx.AsyncClient
) -> None:
    """If a worker dies with part of a request and another revision runs the rest, the answer is of one revision."""
    gateway, old, _ = await asyncio.gather(
        isolated_cluster.start_gateway(),
        isolated_cluster.start_worker(OLD, max_batch_size=16),
        isolated_cluster.start_worker(NEW, max_batch_size=16),
    )
    await wait_until(lambda: gateway.ready_workers(isolated_cluster.queue) == 2, "the gateway sees both workers")
    texts = [f"text {i}" for i in range(800)]
    body = {"texts": texts, "timeout_ms": 60_000}
    request = asyncio.create_task(client.post(f"{gateway.url}/embed", json=body))
    await wait_until(
        lambda: gateway.metric("redbatch_mixed_entries_total") > 0, "both workers have run parts of the request"
    )
    old.kill()
    answer = await request
    assert revision_of(answer, texts) in ({"old"}, {"new"})


async def test_a_partly_cached_request_is_not_mixed(isolated_cluster: GatewayCluster) -> None:
    """If a revision that is gone computed the cached half of a request, all of it is computed by the new revision."""
    gateway, old = await asyncio.gather(
        isolated_cluster.start_gateway(cache_bytes=10_000_000), isolated_cluster.start_worker(OLD)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    def is_cached() -> bool:
        gateway.embed({"texts": ["a"]})
        return gateway.metric("redbatch_cache_hits_total") > 0

    await wait_until(is_cached, "the vector is cached")
    old.kill()
    await isolated_cluster.start_worker(NEW)
    assert revision_of(gateway.embed({"texts": ["a", "b"]}), ["a", "b"]) == {"new"}


@pytest.mark.model
async def test_the_bundled_model_has_several_names(isolated_cluster: GatewayCluster) -> None:
    """A worker may name it as the hub does; clients reach it by each of its names, and without one."""
    unset: dict[str, Any] = {"queue": None, "all_queues": True}
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(**unset), isolated_cluster.start_worker("all-MiniLM-L6-v2", queue=None)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert listed_models(gateway) == ["minilm"]
    expected = gateway.embed({"text": "a"}).json()["embedding"]
    for name in ("minilm", "MiniLM", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "ALL-MINILM-L6-V2"):
        answer = gateway.embed({"text": "a", "model": name})
        assert (answer.status_code, answer.json()["embedding"]) == (200, expected), name
        assert plain_http.get(f"{gateway.url}/v1/models/{name}").status_code == 200
    assert gateway.embed({"text": "a", "model": "all-MiniLM-L12-v2"}).status_code == 404


async def test_a_function_has_two_names(isolated_cluster: GatewayCluster) -> None:
    """That of its class and that of its queue: requests, jobs and the description of a model take either."""
    isolated_cluster.environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(all_queues=True, queue=None), isolated_cluster.start_worker(ECHO, queue=None)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    [listed] = listed_models(gateway)
    assert listed == ECHO.replace(":", "-").lower()
    for name in (ECHO, listed):
        answer = plain_http.post(f"{gateway.url}/predict", json={"input": 7, "model": name})
        assert answer.json() == {"output": [7, 1]}
        assert plain_http.post(f"{gateway.url}/jobs", json={"input": 7, "model": name}).status_code == 202
        assert plain_http.get(f"{gateway.url}/v1/models/{name}").json()["id"] == name
