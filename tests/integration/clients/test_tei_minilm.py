"""TEI's routes with the real model."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from gpuworker.model_spec import parse_model
from tests import plain_http
from tests.integration.clients.test_openai import openai_at
from tests.integration.clients.test_tei import error, post
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.openapi_examples import ANSWERS, BODIES, JSON, examples_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.slow]

TEXTS = ["a fox", "Two dögs and a cat", "word " * 400]


@pytest.mark.timeout(180)
async def test_teis_routes_equal_the_library(cluster: GatewayCluster) -> None:
    """Vectors, tokens and partial batches equal the library's, and those of the OpenAPI description are the model's.

    One test, as a worker takes seconds to load.
    """
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("minilm"))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=60)
    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    expected = model.encode(TEXTS)
    check_vectors(gateway, model, expected)
    check_tokens(gateway, model, expected)
    check_partial(gateway, expected)
    check_examples(gateway)


def check_vectors(gateway: GatewayProcess, model: SentenceTransformer, expected: NDArray[np.float32]) -> None:
    """Checks the vectors of texts and of tokens, the similarity, and the description of the model."""
    client = InferenceClient(model=gateway.url, token="none")
    assert np.abs(client.feature_extraction(TEXTS) - expected).max() <= 1e-5
    similarity = InferenceClient(model=f"{gateway.url}/similarity", token="none")
    actual = similarity.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
    assert actual == pytest.approx((expected[1:] @ expected[0]).tolist(), abs=1e-5)

    all_tokens = model.encode(TEXTS, output_value="token_embeddings")
    embed_all = post(gateway, "/embed_all", {"inputs": TEXTS}).json()
    for rows, expected_rows in zip(embed_all, all_tokens, strict=True):
        assert np.abs(np.asarray(rows) - np.asarray(expected_rows)).max() <= 1e-4

    info = plain_http.get(f"{gateway.url}/info").json()
    assert (info["model_id"], info["max_input_length"]) == ("minilm", 256)
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}


def check_tokens(gateway: GatewayProcess, model: SentenceTransformer, expected: NDArray[np.float32]) -> None:
    """Checks the tokens, their decoded text, and the vectors of token ids among texts."""
    tokenized = post(gateway, "/tokenize", {"inputs": TEXTS}).json()
    ids = [[each["id"] for each in tokens] for tokens in tokenized]
    assert ids == [model.tokenizer(text)["input_ids"] for text in TEXTS]
    assert tokenized[0][1] == {"id": ids[0][1], "text": "a", "special": False, "start": 0, "stop": 1}
    assert post(gateway, "/decode", {"ids": ids}).json() == [
        model.tokenizer.decode(each, skip_special_tokens=True) for each in ids
    ]

    truncated = [each[:256] for each in ids]
    answer = post(gateway, "/embed", {"inputs": [truncated[0], TEXTS[1]]})
    assert np.abs(np.asarray(answer.json()) - expected[:2]).max() <= 1e-5
    assert int(answer.headers["x-compute-tokens"]) == len(ids[0]) + len(ids[1])

    assert error(post(gateway, "/embed", {"inputs": TEXTS, "truncate": False})) == (422, "Validation")


def check_partial(gateway: GatewayProcess, expected: NDArray[np.float32]) -> None:
    """Checks that a text that the model refuses does not fail the others, for OpenAI's client as well."""
    with openai_at(gateway) as openai_client:
        partial = {"truncate": False, "on_error": "null"}
        some: Any = openai_client.embeddings.create(
            model="minilm", input=TEXTS, encoding_format="float", extra_body=partial
        )
    assert some.data[2].embedding is None
    assert np.abs(np.asarray([each.embedding for each in some.data[:2]]) - expected[:2]).max() <= 1e-5
    [error] = some.errors
    assert (error["index"], error["code"]) == (2, "invalid_request")


def check_examples(gateway: GatewayProcess) -> None:
    """Checks that the examples of the OpenAPI description are what the model returns, but for the rest of a vector."""
    paths = ("/tokenize", "/decode", "/similarity", "/embed")
    shown = {path: examples_of(ANSWERS[f"post {path} 200"][JSON])[0] for path in paths}
    actual = {path: post(gateway, path, examples_of(BODIES[path][JSON])[0]).json() for path in paths}
    assert (actual["/tokenize"], actual["/decode"]) == (shown["/tokenize"], shown["/decode"])
    assert actual["/similarity"] == pytest.approx(shown["/similarity"], abs=1e-3)
    assert actual["/embed"]["embedding"][:3] == pytest.approx(shown["/embed"]["embedding"], abs=1e-3)
