"""TEI's routes with a null worker, and Hugging Face's client, unmodified."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from shared.process.version import __version__
from tests import plain_http
from tests.integration.clients.test_openai import DOCUMENTS, unit_vector
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    null_vector,
    vector_bytes,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

HEADERS = (
    "x-compute-time",
    "x-compute-characters",
    "x-compute-tokens",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
)


def post(gateway: GatewayProcess, path: str, body: object, **more: Any) -> httpx.Response:  # noqa: ANN401 - the options of httpx
    """Posts a JSON body."""
    return plain_http.post(f"{gateway.url}{path}", content=json.dumps(body), timeout=60, **more)


def error(answer: httpx.Response) -> tuple[int, str]:
    """Returns the status and type of an error, which must have TEI's schema."""
    body = answer.json()
    assert sorted(body) == ["error", "error_type"]
    assert body["error"]
    return answer.status_code, body["error_type"]


@pytest.mark.parametrize("path", ["", "/", "/embed", "/invocations"])
def test_hugging_faces_client(served: GatewayProcess, path: str) -> None:
    """The client gets float32 vectors with length 1 for one text, and for 1,000 texts in order."""
    client = InferenceClient(model=f"{served.url}{path}", token="none")
    assert np.abs(client.feature_extraction("a fox") - [unit_vector("a fox")]).max() <= 1e-6
    actual = client.feature_extraction(DOCUMENTS)
    assert (actual.shape, str(actual.dtype)) == ((1_000, 384), "float32")
    assert np.abs(actual - [unit_vector(text) for text in DOCUMENTS]).max() <= 1e-6


def test_hugging_faces_client_with_options(served: GatewayProcess) -> None:
    """The client's options have their effect; an option that the model refuses is an HfHubHTTPError."""
    client = InferenceClient(model=f"{served.url}/embed", token="none")
    assert vector_bytes(client.feature_extraction("a", normalize=False)[0]) == null_vector("a")
    actual = client.feature_extraction("a", dimensions=8, truncate=True, truncation_direction="left")
    first = unit_vector("a")[:8]
    assert np.abs(actual - first / np.linalg.norm(first)).max() <= 1e-6
    with pytest.raises(HfHubHTTPError) as caught:
        client.feature_extraction("a", prompt_name="query")
    assert caught.value.response.status_code == 422


async def test_hugging_faces_asynchronous_client(served: GatewayProcess) -> None:
    """64 concurrent requests of the asynchronous client get their vectors."""
    async with AsyncInferenceClient(model=f"{served.url}/embed", token="none") as client:
        actual = await asyncio.gather(*(client.feature_extraction(text) for text in DOCUMENTS[:64]))
    assert np.abs(np.concatenate(actual) - [unit_vector(text) for text in DOCUMENTS[:64]]).max() <= 1e-6


def test_similarity_is_the_cosine(served: GatewayProcess) -> None:
    """The similarity of sentences is the cosine of their vectors."""
    client = InferenceClient(model=f"{served.url}/similarity", token="none")
    actual = client.sentence_similarity("a", other_sentences=["a", "b", "c"])
    assert actual == pytest.approx([float(unit_vector("a") @ unit_vector(each)) for each in "abc"], abs=1e-6)


def test_an_answer_has_the_headers_of_tei(served: GatewayProcess) -> None:
    """An answer has TEI's headers with whole numbers."""
    answer = post(served, "/embed", {"inputs": ["ab", "cde"]})
    assert np.abs(np.asarray(answer.json()) - [unit_vector("ab"), unit_vector("cde")]).max() <= 1e-6
    assert answer.headers["x-compute-type"] == "cpu"
    values = {name: int(answer.headers[name]) for name in HEADERS}
    assert (values["x-compute-characters"], values["x-compute-tokens"]) == (5, 2)
    assert 0 <= values["x-inference-time"] <= values["x-total-time"] == values["x-compute-time"]
    assert answer.headers["x-request-id"]


def test_embed_all_returns_vectors_of_tokens(served: GatewayProcess) -> None:
    """/embed_all returns one vector per token; the null model has one token per input."""
    answer = post(served, "/embed_all", {"inputs": ["a", "b"]})
    assert [[vector_bytes(row) for row in rows] for rows in answer.json()] == [[null_vector("a")], [null_vector("b")]]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/embed", {"inputs": []}, (400, "Empty")),
        ("/embed", {"inputs": ""}, (400, "Empty")),
        ("/embed", {"inputs": 1}, (422, "Validation")),
        ("/embed", {"inputs": ["a"] * 2_049}, (422, "Validation")),
        ("/embed", {"inputs": "a", "dimensions": 385}, (422, "Validation")),
        ("/embed", {"inputs": "a", "prompt_name": "query"}, (422, "Validation")),
        ("/embed_all", {"inputs": "x" * 2_000_001}, (413, "Validation")),
        ("/tokenize", {"inputs": "a"}, (422, "Validation")),
        ("/decode", {"ids": [1]}, (422, "Validation")),
        ("/similarity", {"inputs": "a"}, (422, "Validation")),
        ("/", {"text": "a"}, (422, "Validation")),
    ],
)
def test_errors_on_routes_of_tei_have_its_schema(
    served: GatewayProcess, path: str, body: object, expected: tuple[int, str]
) -> None:
    """An invalid request gets an error with TEI's schema, whether the gateway or the model refuses it."""
    assert error(post(served, path, body)) == expected


@pytest.mark.parametrize("body", [b"{", b'{"inputs": "a"', b"{}", b'{"inputs": "a", "text": "b"}', b"[]", b"\xff"])
def test_other_errors_on_embed_have_the_native_schema(served: GatewayProcess, body: bytes) -> None:
    """On /embed, which both dialects use, a body that is not of TEI gets an error with the native schema."""
    answer = plain_http.post(f"{served.url}/embed", content=body)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")


def test_wrong_methods_and_media_types_have_the_schema_of_tei(served: GatewayProcess) -> None:
    """On routes that only TEI has, a wrong method or media type gets an error with TEI's schema."""
    assert error(plain_http.get(f"{served.url}/embed_all"))[0] == 405
    answer = plain_http.post(f"{served.url}/embed_all", content=b"a", headers={"content-type": "text/plain"})
    assert error(answer) == (415, "Validation")


def test_info_describes_the_model(served: GatewayProcess) -> None:
    """/info contains the model as the worker reports it, and the limits of the gateway."""
    info = plain_http.get(f"{served.url}/info").json()
    expected = {"model_id": "null", "model_dtype": "float32", "version": __version__, "max_client_batch_size": 2_048}
    assert expected.items() <= info.items()
    assert (info["model_type"], info["max_batch_requests"]) == ({"embedding": {"pooling": ""}}, 64)
    assert info["max_batch_tokens"] > 0
    answer = plain_http.get(f"{served.url}/ping")
    assert (answer.status_code, answer.content) == (200, b"")
    assert plain_http.get(f"{served.url}/").status_code == 200
    assert plain_http.get(f"{served.url}/health").json() == {"status": "ok"}


@pytest.mark.timeout(60)
async def test_without_a_worker_it_is_unhealthy(cluster: GatewayCluster) -> None:
    """Without a worker, TEI's routes for health and information are Unhealthy."""
    gateway = await cluster.start_gateway(worker_grace_s="0.5")
    await wait_until(lambda: gateway.missing() == ["worker"], "the gateway knows Redis")
    for path in ("/", "/ping", "/info"):
        assert error(plain_http.get(f"{gateway.url}{path}")) == (503, "Unhealthy")


@pytest.mark.parametrize("path", ["/embed", "/batch_embed"])
def test_failed_inputs_of_a_batch_are_null(served: GatewayProcess, path: str) -> None:
    """With on_error=null, failed inputs have null as vector and an entry in `errors`; the others have vectors."""
    texts = ["a", "", "x" * 200_000, "b"]
    answer = post(served, path, {"texts": texts, "on_error": "null"})
    assert answer.status_code == 200
    content = answer.json()
    assert [each and vector_bytes(each) for each in content["embeddings"]] == [
        null_vector("a"),
        None,
        None,
        null_vector("b"),
    ]
    assert [(each["index"], each["code"]) for each in content["errors"]] == [
        (1, "invalid_request"),
        (2, "too_large"),
    ]
    answer = post(served, path, {"texts": ["", ""], "on_error": "null"})
    assert (answer.status_code, answer.json()["embeddings"]) == (200, [None, None])


def test_batch_embed_returns_the_vectors_of_texts(served: GatewayProcess) -> None:
    """/batch_embed, the route of the first predecessor of Redbatch, accepts `texts` and no `text`."""
    answer = post(served, "/batch_embed", {"texts": ["a", "b"]})
    assert list(answer.json()) == ["embeddings"]
    assert [vector_bytes(each) for each in answer.json()["embeddings"]] == [null_vector("a"), null_vector("b")]
    answer = post(served, "/batch_embed", {"text": "a"})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
