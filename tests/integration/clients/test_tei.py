"""TEI's routes in front of a null worker, and Hugging Face's own client, unmodified."""

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
from tests.integration.clients.test_openai import DOCUMENTS, unit
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


def post(gateway: GatewayProcess, path: str, body: object, **more: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
    """Posts JSON."""
    return plain_http.post(f"{gateway.url}{path}", content=json.dumps(body), timeout=60, **more)


def error(answer: httpx.Response) -> tuple[int, str]:
    """Returns status and type of an error, which must be in TEI's shape."""
    body = answer.json()
    assert sorted(body) == ["error", "error_type"]
    assert body["error"]
    return answer.status_code, body["error_type"]


@pytest.mark.parametrize("path", ["", "/", "/embed", "/invocations"])
def test_hugging_faces_client(served: GatewayProcess, path: str) -> None:
    """A text, and a thousand: float32 of length 1, in order."""
    client = InferenceClient(model=f"{served.url}{path}", token="none")
    assert np.abs(client.feature_extraction("a fox") - [unit("a fox")]).max() <= 1e-6
    found = client.feature_extraction(DOCUMENTS)
    assert (found.shape, str(found.dtype)) == ((1_000, 384), "float32")
    assert np.abs(found - [unit(text) for text in DOCUMENTS]).max() <= 1e-6


def test_hugging_faces_client_with_options(served: GatewayProcess) -> None:
    """Those that TEI has; what the model refuses is an error of the client's own kind."""
    client = InferenceClient(model=f"{served.url}/embed", token="none")
    assert vector_bytes(client.feature_extraction("a", normalize=False)[0]) == null_vector("a")
    found = client.feature_extraction("a", dimensions=8, truncate=True, truncation_direction="left")
    first = unit("a")[:8]
    assert np.abs(found - first / np.linalg.norm(first)).max() <= 1e-6
    with pytest.raises(HfHubHTTPError) as caught:
        client.feature_extraction("a", prompt_name="query")
    assert caught.value.response.status_code == 422


async def test_hugging_faces_asynchronous_client(served: GatewayProcess) -> None:
    """Many at once."""
    async with AsyncInferenceClient(model=f"{served.url}/embed", token="none") as client:
        found = await asyncio.gather(*(client.feature_extraction(text) for text in DOCUMENTS[:64]))
    assert np.abs(np.concatenate(found) - [unit(text) for text in DOCUMENTS[:64]]).max() <= 1e-6


def test_sentences_are_compared(served: GatewayProcess) -> None:
    """By the cosine of their vectors."""
    client = InferenceClient(model=f"{served.url}/similarity", token="none")
    found = client.sentence_similarity("a", other_sentences=["a", "b", "c"])
    assert found == pytest.approx([float(unit("a") @ unit(each)) for each in "abc"], abs=1e-6)


def test_an_answer_has_teis_headers(served: GatewayProcess) -> None:
    """Whole numbers."""
    answer = post(served, "/embed", {"inputs": ["ab", "cde"]})
    assert np.abs(np.asarray(answer.json()) - [unit("ab"), unit("cde")]).max() <= 1e-6
    assert answer.headers["x-compute-type"] == "cpu"
    told = {name: int(answer.headers[name]) for name in HEADERS}
    assert (told["x-compute-characters"], told["x-compute-tokens"]) == (5, 2)
    assert 0 <= told["x-inference-time"] <= told["x-total-time"] == told["x-compute-time"]
    assert answer.headers["x-request-id"]


def test_vectors_of_tokens(served: GatewayProcess) -> None:
    """The null model has one token an input."""
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
def test_what_is_wrong_is_told_in_teis_words(
    served: GatewayProcess, path: str, body: object, expected: tuple[int, str]
) -> None:
    """Whether a gateway sees it, or the model."""
    assert error(post(served, path, body)) == expected


@pytest.mark.parametrize("body", [b"{", b'{"inputs": "a"', b"{}", b'{"inputs": "a", "text": "b"}', b"[]", b"\xff"])
def test_what_is_not_teis_is_told_in_our_words(served: GatewayProcess, body: bytes) -> None:
    """On /embed, where both may ask."""
    answer = plain_http.post(f"{served.url}/embed", content=body)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")


def test_other_methods_and_media_types(served: GatewayProcess) -> None:
    """In TEI's shape where only TEI's clients ask."""
    assert error(plain_http.get(f"{served.url}/embed_all"))[0] == 405
    answer = plain_http.post(f"{served.url}/embed_all", content=b"a", headers={"content-type": "text/plain"})
    assert error(answer) == (415, "Validation")


def test_what_is_served(served: GatewayProcess) -> None:
    """The model as its worker tells it, with the bounds of this gateway."""
    info = plain_http.get(f"{served.url}/info").json()
    expected = {"model_id": "null", "model_dtype": "float32", "version": __version__, "max_client_batch_size": 2_048}
    assert expected.items() <= info.items()
    assert (info["model_type"], info["max_batch_requests"]) == ({"embedding": {"pooling": ""}}, 64)
    assert info["max_batch_tokens"] > 0
    for path in ("/", "/ping"):
        answer = plain_http.get(f"{served.url}{path}")
        assert (answer.status_code, answer.content) == (200, b"")
    assert plain_http.get(f"{served.url}/health").json() == {"status": "ok"}


@pytest.mark.timeout(60)
async def test_without_a_worker_it_is_unhealthy(cluster: GatewayCluster) -> None:
    """What asks for health, and what asks for vectors."""
    gateway = await cluster.start_gateway(worker_grace_s="0.5")
    await wait_until(lambda: gateway.missing() == ["worker"], "the gateway knows Redis")
    for path in ("/", "/ping", "/info"):
        assert error(plain_http.get(f"{gateway.url}{path}")) == (503, "Unhealthy")


@pytest.mark.parametrize("path", ["/embed", "/batch_embed"])
def test_a_batch_with_an_input_that_fails(served: GatewayProcess, path: str) -> None:
    """The others have their vectors; that one has null, and its error stands beside them."""
    texts = ["a", "", "x" * 200_000, "b"]
    answer = post(served, path, {"texts": texts, "on_error": "null"})
    assert answer.status_code == 200
    told = answer.json()
    assert [each and vector_bytes(each) for each in told["embeddings"]] == [
        null_vector("a"),
        None,
        None,
        null_vector("b"),
    ]
    assert [(each["index"], each["code"]) for each in told["errors"]] == [
        (1, "invalid_request"),
        (2, "too_large"),
    ]
    answer = post(served, path, {"texts": ["", ""], "on_error": "null"})
    assert (answer.status_code, answer.json()["embeddings"]) == (200, [None, None])


def test_a_batch_of_texts(served: GatewayProcess) -> None:
    """As the worker of the first of Redbatch's forerunners took it."""
    answer = post(served, "/batch_embed", {"texts": ["a", "b"]})
    assert list(answer.json()) == ["embeddings"]
    assert [vector_bytes(each) for each in answer.json()["embeddings"]] == [null_vector("a"), null_vector("b")]
    answer = post(served, "/batch_embed", {"text": "a"})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
