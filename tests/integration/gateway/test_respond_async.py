"""Prefer: respond-async (RFC 7240): the body of a computing route becomes a job."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    null_vector,
    vector_bytes,
)
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
DESCRIBE = "tests.integration.functions.function_models:Describe"
ECHO = "tests.integration.functions.function_models:Echo"
ASYNC = {"prefer": "wait=5, respond-async"}
TEXTS = ["one", "two and more"]


def send(gateway: GatewayProcess, route: str, body: object, **headers: str) -> httpx.Response:
    """Posts a body, with the preference for a job."""
    named = ASYNC | {name.replace("_", "-"): value for name, value in headers.items()}
    return plain_http.post(gateway.url + route, json=body, headers=named, timeout=60)


def accepted(answer: httpx.Response) -> dict[str, Any]:
    """Returns the job in an answer, which must be as RFC 7240 says."""
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["location"] == job["status_url"] == f"/jobs/{job['id']}"
    assert answer.headers["x-request-id"] == job["request_id"]
    return job


def page_of(client: JobClient, new_job: dict[str, Any]) -> dict[str, Any]:
    """Returns the first page of the results of a job, once it has ended."""
    job = client.wait_until_ended(new_job)
    assert job["status"] == "done", job
    page: dict[str, Any] = client.get(new_job["result_url"]).json()
    return page


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/embed", {"texts": TEXTS}),
        ("/embed", {"inputs": TEXTS, "normalize": False}),
        ("/batch_embed", {"texts": TEXTS}),
        ("/v1/embeddings", {"input": TEXTS, "model": "null", "normalize": False}),
        ("/embeddings", {"input": TEXTS, "model": "null", "normalize": False, "encoding_format": "float"}),
        ("/", {"inputs": TEXTS, "normalize": False}),
        ("/invocations", {"inputs": TEXTS, "normalize": False}),
    ],
)
def test_vectors_of_the_job_are_those_of_the_answer(served: GatewayProcess, route: str, body: dict[str, Any]) -> None:
    """Each route that embeds accepts the body as a job, whose vectors are those of the model with the same options."""
    client = JobClient(served)
    body = {name: served_queue(client) if name == "model" else value for name, value in body.items()}
    new_job = accepted(send(served, route, body, x_request_id="r-1"))
    assert new_job["request_id"] == "r-1"
    assert list(map(vector_bytes, page_of(client, new_job)["embeddings"])) == list(map(null_vector, TEXTS))


def served_queue(client: JobClient) -> str:
    """Returns the name of the queue that the gateway serves."""
    return str(client.get("/v1/models").json()["data"][0]["id"])


def test_a_priority_of_coheres_clients_is_one_of_a_job(served: GatewayProcess) -> None:
    """It is a number there."""
    client = JobClient(served)
    body = {"model": served_queue(client), "texts": TEXTS, "priority": 5, "output_dimension": 16}
    vectors = np.array(page_of(client, accepted(send(served, "/v2/embed", body)))["embeddings"])
    assert vectors.shape == (2, 16)


def test_options_are_kept(served: GatewayProcess) -> None:
    """Options, timeout, tenant and idempotency key of a body or its headers hold for the job."""
    client = JobClient(served, x_tenant="ann")
    body = {"input": TEXTS, "model": served_queue(client), "dimensions": 16, "timeout_ms": 200_000}
    new_job = accepted(send(served, "/v1/embeddings", body, x_tenant="ann", idempotency_key="a"))
    vectors = np.array(page_of(client, new_job)["embeddings"])
    assert vectors.shape == (2, 16)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    job = client.get(new_job["status_url"]).json()
    assert job["expires_at"] - job["created_at"] == pytest.approx(200, abs=1)
    assert JobClient(served).get(new_job["status_url"]).status_code == 404
    again = accepted(send(served, "/v1/embeddings", body, x_tenant="ann", idempotency_key="a"))
    assert again["id"] == new_job["id"]
    other = send(served, "/v1/embeddings", body | {"normalize": False}, x_tenant="ann", idempotency_key="a")
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")


async def test_token_operations_become_jobs(cluster: GatewayCluster) -> None:
    """Tokens, texts, token vectors, and the vectors behind a similarity are the results of their jobs."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("minilm"))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client = JobClient(gateway)

    def both(route: str, body: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        answer = plain_http.post(gateway.url + route, json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json(), page_of(client, accepted(send(gateway, route, body)))

    tokens, page = both("/tokenize", {"inputs": TEXTS, "add_special_tokens": False})
    assert page["outputs"] == tokens
    texts, page = both("/decode", {"ids": [[token["id"] for token in each] for each in tokens]})
    assert page["outputs"] == texts == TEXTS
    vectors, page = both("/embed_all", {"inputs": TEXTS})
    for got, expected in zip(page["embeddings"], vectors, strict=True):
        assert np.array(got) == pytest.approx(np.array(expected), abs=1e-5)
    cosines, page = both("/similarity", {"inputs": {"source_sentence": "a", "sentences": TEXTS}})
    rows = np.array(page["embeddings"])
    assert rows[1:] @ rows[0] == pytest.approx(np.array(cosines), abs=1e-5)


@pytest.mark.parametrize(
    ("route", "body", "name"),
    [
        ("/embed", {"text": "a", "normalise": False}, "did you mean normalize?"),
        ("/embed", {"text": "a", "on_error": "fail"}, "on_error"),
        ("/embed", {"inputs": "a", "priority": "bulk"}, "priority"),
        ("/predict", {"input": 1, "dimensions": 3}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "model": "m", "encoding_format": "base64"}, "encoding_format"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"], "top": 1}}, "inputs.top"),
        ("/tokenize", {"inputs": "a", "truncate": True}, "truncate"),
        ("/v1/predict", {"input": 1}, "does not offer predict"),
    ],
)
def test_what_a_job_cannot_keep_is_refused_by_name(
    served: GatewayProcess, route: str, body: dict[str, Any], name: str
) -> None:
    """A field or a value that the job would drop gets a 4xx in the format of the route, which names the field."""
    answer = send(served, route, body)
    assert answer.status_code in (400, 422)
    assert name in answer.text


def test_without_the_preference_nothing_changes(served: GatewayProcess) -> None:
    """Other preferences, also ones that mention respond-async in a quoted value, get the synchronous answer."""
    for prefer in ("wait=5", 'x="a, respond-async"', "respond-sync"):
        answer = send(served, "/embed", {"text": "a", "normalize": False}, prefer=prefer)
        assert (answer.status_code, "preference-applied" in answer.headers) == (200, False)
    headers = [("Prefer", "wait=5"), ("Prefer", "Respond-Async")]
    answer = plain_http.post(f"{served.url}/embed", json={"text": "a"}, headers=headers)
    accepted(answer)


def test_inputs_that_are_invalid_fail_alone(served: GatewayProcess) -> None:
    """With on_error null, invalid texts fail alone, as in the synchronous answer; without it the body is refused."""
    client = JobClient(served)
    new_job = accepted(send(served, "/embed", {"texts": ["a", "", "b"], "on_error": "null"}))
    page = page_of(client, new_job)
    assert [row is None for row in page["embeddings"]] == [False, True, False]
    assert [(each["index"], each["code"]) for each in page["errors"]] == [(1, "invalid_request")]
    assert send(served, "/embed", {"texts": ["a", ""]}).status_code == 400
    assert send(served, "/embed", {"text": "a"}, idempotency_key="a b").status_code == 400


async def test_predict_becomes_a_job(cluster: GatewayCluster) -> None:
    """POST /predict and its alias /v1/predict answer at once or become a job; the outputs are the same."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(ECHO))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client, values = JobClient(gateway), [None, 1, {"a": "b"}]
    for route in ("/predict", "/v1/predict"):
        answer = plain_http.post(gateway.url + route, json={"inputs": values})
        assert [output[0] for output in answer.json()["outputs"]] == values
        new_job = accepted(send(gateway, route, {"inputs": values}))
        assert [output[0] for output in page_of(client, new_job)["outputs"]] == values
    refused = send(gateway, "/embed", {"text": "a"})
    assert (refused.status_code, "It offers: predict." in refused.text) == (400, True)


async def test_a_binary_body_becomes_a_job(cluster: GatewayCluster) -> None:
    """The bytes of an image, or an array, reach the class as they do without the preference; headers hold options."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(DESCRIBE))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client, file = JobClient(gateway), io.BytesIO()
    np.save(file, np.arange(6, dtype=np.int16))
    for route, media_type, body in (
        ("/predict", "application/octet-stream", bytes(range(256)) * 4_000),
        ("/v1/predict", "application/x-npy", file.getvalue()),
    ):
        url, headers = gateway.url + route, {"content-type": media_type, "x-timeout-ms": "200000"}
        answer = plain_http.post(url, content=body, headers=headers)
        new_job = accepted(plain_http.post(url, content=body, headers=ASYNC | headers))
        assert page_of(client, new_job)["outputs"] == [answer.json()["output"]]
        job = client.get(new_job["status_url"]).json()
        assert job["expires_at"] - job["created_at"] == pytest.approx(200, abs=1)


async def test_the_memory_of_a_body_is_free_once_it_is_a_job(cluster: GatewayCluster) -> None:
    """Accepted or refused, a large body leaves the budget of bodies: the next one gets the memory."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(max_bodies_bytes=100_000), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client, large = JobClient(gateway), {"texts": ["x" * 80_000]}
    jobs = [accepted(send(gateway, "/embed", large)) for _ in range(2)]
    assert send(gateway, "/embed", large | {"dimensions": "many"}).status_code == 400
    assert send(gateway, "/embed", large, idempotency_key="a b").status_code == 400
    jobs.append(accepted(send(gateway, "/embed", large)))
    assert [client.wait_until_ended(each)["status"] for each in jobs] == ["done"] * 3


async def test_an_accepted_job_has_no_duration(cluster: GatewayCluster) -> None:
    """A 202 is counted, but the time until it would look like a fast answer among those of requests."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client = JobClient(gateway)
    client.wait_until_ended(accepted(send(gateway, "/embed", {"text": "a"})))
    for _ in range(2):
        assert gateway.embed({"text": "a"}).status_code == 200
    requests = 'redbatch_requests_total{route="/embed",status="%d"}'
    durations = "redbatch_request_duration_seconds_count"
    await wait_until(lambda: gateway.metric(requests % 200) == 2 <= gateway.metric(durations), "both are counted")
    assert (gateway.metric(requests % 202), gateway.metric(durations)) == (1, 2)
