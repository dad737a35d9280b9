"""The examples of the OpenAPI description against a gateway: answers have their keys, and errors their messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.dialects.response_models import EXAMPLE_ID
from shared import api_keys
from shared.api_keys import ApiKey, digest_of, new_id, new_secret
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.integration.gateway.job_client import JobClient
from tests.openapi_examples import ANSWERS, BODIES, JSON, examples_of
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
SQUARES = "docs.examples.squares:Squares"
SCORING = ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/classify", "/v1/classify")
NEED_ANOTHER_MODEL = ("/predict", "/v1/predict", "/jobs", "/tokenize", "/decode", "/embed_sparse", *SCORING)
"""The routes that the null model of the tests does not offer, and that of jobs."""

MODEL = "minilm"
"""The queue in all examples."""

LINES = {"content-type": "application/x-ndjson"}
NO_MODEL = {"x-model": "none"}
MANY = ["a"] * 3_000
SENT: dict[str, dict[str, Any]] = {
    "post /embed 400": {"json": {"texts": []}},
    "post /embed 404": {"json": {"text": "a", "model": "none"}},
    "post /embed 413": {"json": {"texts": MANY}},
    "post /embed 415": {"content": b"{}", "headers": {"content-type": "text/plain"}},
    "post /predict 400": {"json": {"inputs": []}},
    "post /predict 413": {"json": {"inputs": MANY}},
    "post /predict 415": {"content": b"{}", "headers": {"content-type": "text/plain"}},
    "post /v1/embeddings 400": {"json": {"model": MODEL}},
    "post /v1/embeddings 404": {"json": {"model": "none", "input": "a"}},
    "post /v1/embeddings 413": {"json": {"model": MODEL, "input": " " * 33_554_432}},
    "post / 400": {"json": {"inputs": ""}},
    "post / 404": {"json": {"inputs": "a"}, "headers": NO_MODEL},
    "post / 413": {"json": {"inputs": " " * 33_554_432}},
    "post / 422": {"json": {"inputs": MANY}},
    "post /jobs 400": {"content": b"", "headers": LINES},
    "post /jobs 404": {"json": {"texts": ["a"], "model": "none"}},
    "post /jobs 415": {"content": b"{}", "headers": {"content-type": "text/plain"}},
    "get /jobs/{id} 400": {"headers": {"x-tenant": "a b"}},
    "get /jobs/{id} 404": {},
    "get /info 404": {"headers": NO_MODEL},
    "get /v1/models/{model} 404": {},
}
"""Requests that fail, by the answer to them."""


def is_like(value: object, example: object) -> bool:
    """Whether a JSON value has the keys of an example, at all depths; scalars and the lengths of lists may differ."""
    if isinstance(value, dict) and isinstance(example, dict):
        return value.keys() == example.keys() and all(is_like(value[name], example[name]) for name in value)
    if isinstance(value, list) and isinstance(example, list):
        return all(any(is_like(each, other) for other in example) for each in value)
    return not isinstance(value, dict | list) and not isinstance(example, dict | list)


def assert_has_keys(answer: httpx.Response, method: str, path: str) -> dict[str, Any]:
    """Returns the body of an answer, which must have the keys of a documented example."""
    examples = examples_of(ANSWERS[f"{method} {path} {answer.status_code}"][JSON])
    assert any(is_like(answer.json(), each) for each in examples), answer.text[:500]
    body: dict[str, Any] = answer.json()
    return body


def assert_is_documented(answer: httpx.Response, name: str, queue: str) -> None:
    """Checks that an answer is a documented example, but for the id of the request and the names of the model."""
    text = answer.text.replace(answer.headers.get("x-request-id", EXAMPLE_ID), EXAMPLE_ID)
    text = text.replace(f"{queue} (null)", queue).replace(queue, MODEL)
    assert answer.status_code == int(name.rpartition(" ")[2]), text
    assert json.loads(text) in examples_of(ANSWERS[name][JSON])


def queue_of(gateway: GatewayProcess) -> str:
    """Returns the name of the only queue that a gateway serves."""
    (model,) = plain_http.get(f"{gateway.url}/v1/models").json()["data"]
    return str(model["id"])


def send(gateway: GatewayProcess, name: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - the options of httpx
    """Sends a request to the route of a documented answer."""
    method, path, _ = name.split()
    with plain_http.blocking_client(base_url=gateway.url, timeout=30) as client:
        return client.request(method, path.format(id="none", model="none"), **options)


def is_of_pairs(example: dict[str, Any]) -> bool:
    """Whether the inputs of an example are lists of texts, as a classifier takes them."""
    inputs = example.get("inputs", [])
    return isinstance(inputs, list) and any(isinstance(each, list) for each in inputs)


@pytest.mark.parametrize("path", [each for each in BODIES if each not in NEED_ANOTHER_MODEL])
def test_answers_have_the_keys_of_the_examples(served: GatewayProcess, path: str) -> None:
    """Each example of a body gets a 200 or, with `Prefer: respond-async`, a 202 as the examples of these show."""
    for example in examples_of(BODIES[path][JSON]):
        if "query" in example or is_of_pairs(example):  # for a reranker or a classifier
            continue
        body = json.loads(json.dumps(example).replace(MODEL, queue_of(served)))
        for headers, status in ({}, 200), ({"prefer": "respond-async"}, 202):
            answer = plain_http.post(f"{served.url}{path}", json=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert_has_keys(answer, "post", path)


@pytest.mark.parametrize("path", ["/", "/info", "/v1/models", "/v1/models/{model}", "/health", "/livez", "/readyz"])
def test_reports_have_the_keys_of_the_examples(served: GatewayProcess, path: str) -> None:
    """What a gateway says about itself is as the examples show."""
    assert_has_keys(plain_http.get(served.url + path.format(model=queue_of(served))), "get", path)


def test_jobs_have_the_keys_of_the_examples(served: GatewayProcess) -> None:
    """A job, its status and its results are as the examples show, also with an input that failed."""
    client = JobClient(served)
    new_job = assert_has_keys(client.post({"texts": ["a", ""]}), "post", "/jobs")
    assert_has_keys(client.get(f"{new_job['status_url']}?wait=30"), "get", "/jobs/{id}")
    assert_has_keys(client.get(new_job["result_url"]), "get", "/jobs/{id}/result")


async def test_answers_of_functions_have_the_keys_of_the_examples(cluster: GatewayCluster) -> None:
    """The example bodies of /predict and /jobs get outputs from the function of the documentation."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(SQUARES))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    for path in ("/predict", "/v1/predict"):
        for body in (*examples_of(BODIES[path][JSON]), {"inputs": [7, "a"], "on_error": "null"}):
            assert_has_keys(plain_http.post(f"{gateway.url}{path}", json=body), "post", path)
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"inputs": [7, 8]}))
    client.wait_until_ended(new_job)
    assert_has_keys(client.get(new_job["result_url"]), "get", "/jobs/{id}/result")


@pytest.mark.parametrize("name", SENT)
def test_an_error_is_the_example(served: GatewayProcess, name: str) -> None:
    """A client that makes this error gets what the page shows: status, code and message, in its dialect."""
    options = dict(SENT[name])
    if "json" in options:
        options["json"] = json.loads(json.dumps(options["json"]).replace(MODEL, queue_of(served)))
    assert_is_documented(send(served, name, **options), name, queue_of(served))


def test_a_reused_key_is_the_example(served: GatewayProcess) -> None:
    """The second of two jobs with one Idempotency-Key gets the 422 that the page shows."""
    client = JobClient(served, idempotency_key="documented")
    client.post({"texts": ["a"]})
    assert_is_documented(client.post({"texts": ["b"]}), "post /jobs 422", queue_of(served))


async def test_errors_without_a_worker_are_the_examples(cluster: GatewayCluster) -> None:
    """While no worker has been seen, requests and probes get the 503 that the page shows."""
    gateway = await cluster.start_gateway()
    await wait_until(lambda: gateway.missing() == ["worker"], "the gateway knows Redis")
    for name in ("get / 503", "get /ping 503", "get /readyz 503"):
        assert_is_documented(send(gateway, name), name, cluster.queue)
    for path, body in (("/embed", {"text": "a"}), ("/", {"inputs": "a"})):
        name = f"post {path} 503"
        assert_is_documented(send(gateway, name, json=body), name, cluster.queue)


async def test_errors_of_a_job_that_waits_are_the_examples(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """A job that no worker runs has no results, a cancelled one never; a request gets no answer in time."""
    gateway = await cluster.start_gateway()
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the heartbeat")
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"texts": ["a"]}))
    assert_is_documented(client.get(new_job["result_url"]), "get /jobs/{id}/result 409", cluster.queue)
    assert_has_keys(client.delete(new_job["status_url"]), "delete", "/jobs/{id}")
    assert_is_documented(client.get(new_job["result_url"]), "get /jobs/{id}/result 410", cluster.queue)
    answer = gateway.embed({"text": "a", "timeout_ms": 500})
    assert_is_documented(answer, "post /embed 504", cluster.queue)


async def test_errors_of_api_keys_are_the_examples(isolated_cluster: GatewayCluster, own_redis: Server) -> None:
    """A request without a key, and one with a key for something else, get the 401 and 403 that the page shows."""
    gateway = await isolated_cluster.start_gateway(auth="on")
    secret = new_secret()
    key = ApiKey(new_id(), digest_of(secret), ("jobs",), "", "", 0, None)
    queue = QueueConnections(QueueSettings(redis_url=own_redis.url), "any", "test")
    await api_keys.add(queue.connection("keys"), key)
    await queue.close()
    for path in ("/embed", "/v1/embeddings", "/"):
        for status, headers in ((401, {}), (403, {"x-api-key": f"{key.key_id}.{secret}"})):
            name = f"post {path} {status}"
            assert_is_documented(send(gateway, name, json={}, headers=headers), name, isolated_cluster.queue)
