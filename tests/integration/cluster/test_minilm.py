"""The real model through the whole cluster, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from gpuworker.model_spec import parse_model
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.gateway.job_client import JobClient
from tests.integration.worker.test_minilm import encode_with_library, entries_of, mixed_texts
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model]

MAX_IN_FLIGHT = 64


@pytest.mark.timeout(180)
async def test_vectors_over_http_equal_the_library(cluster: GatewayCluster) -> None:
    """Each of hundreds of mixed texts, in 64 concurrent requests to two gateways, gets the library's vector."""
    await cluster.start_worker("minilm")
    gateways = [await cluster.start_gateway() for _ in range(2)]
    requests = entries_of([text for text in mixed_texts(400) if text])
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def send(client: httpx.AsyncClient, number: int, texts: list[str]) -> list[list[float]]:
        async with slots:
            url = f"{gateways[number % 2].url}/embed"
            answer = await client.post(url, json={"texts": texts, "timeout_ms": 120_000})
            assert answer.status_code == 200, answer.text
            vectors: list[list[float]] = answer.json()["embeddings"]
            return vectors

    async with plain_http.client(timeout=150, limits=httpx.Limits(max_connections=MAX_IN_FLIGHT)) as client:
        answers = await asyncio.gather(*(send(client, i, texts) for i, texts in enumerate(requests)))
    actual = np.asarray([vector for vectors in answers for vector in vectors], dtype=np.float32)
    expected = encode_with_library([text for texts in requests for text in texts])
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((actual * expected).sum(axis=1, dtype=np.float64) / norms).min() >= 0.99999
    assert np.abs(actual - expected).max() <= 1e-5


@pytest.mark.timeout(180)
async def test_fewer_dimensions_have_length_1_again_and_prompts_are_empty(cluster: GatewayCluster) -> None:
    """/embed cuts a vector and normalizes the rest as the model does; its prompts change nothing. Jobs know them."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("minilm"))

    def embed(**options: object) -> np.ndarray:
        answer = plain_http.post(f"{gateway.url}/embed", json={"text": "Hello, world", **options})
        assert answer.status_code == 200, answer.text
        return np.asarray(answer.json()["embedding"])

    whole = await asyncio.to_thread(embed)
    cut = whole[:64] / np.linalg.norm(whole[:64])
    assert np.allclose(await asyncio.to_thread(embed, dimensions=64), cut, atol=1e-6)
    assert np.linalg.norm(await asyncio.to_thread(embed, dimensions=64, normalize=False)) != pytest.approx(1, abs=0.1)
    for prompt in ("query", "document"):
        assert np.allclose(await asyncio.to_thread(embed, prompt_name=prompt), whole, atol=1e-6)

    def is_job_refused() -> bool:
        refused = plain_http.post(f"{gateway.url}/jobs", json={"texts": ["a"], "prompt_name": "question"})
        return refused.status_code == 400 and "such prompt; it has document, query." in refused.text

    await wait_until(is_job_refused, "the gateway has heard of the model's prompts, and names them")


PROMPTS = {"query": "query: ", "passage": "passage: "}


@pytest.mark.timeout(180)
async def test_an_input_type_puts_the_prompt_of_its_purpose_before_texts(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    """In each API's words, at once and as a job: the vectors are those of `encode` with that prompt."""
    model = SentenceTransformer(parse_model("minilm").path, prompts=PROMPTS)
    await asyncio.to_thread(model.save, str(tmp_path / "prompted"))
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(str(tmp_path / "prompted")))
    name = (await asyncio.to_thread(plain_http.get, f"{gateway.url}/v1/models")).json()["data"][0]["id"]
    openai, text = {"model": name, "input": ["Hello, world"]}, {"texts": ["Hello, world"]}
    bodies = {
        "query": (
            ("/embed", text | {"input_type": "query"}),
            ("/v1/embeddings", openai | {"input_type": "query"}),
            ("/v1/embeddings", openai | {"task": "retrieval.query"}),
            ("/v2/embed", text | {"model": name, "input_type": "search_query"}),
        ),
        "passage": (
            ("/batch_embed", text | {"input_type": "document"}),
            ("/v1/embeddings", openai | {"task": "retrieval.passage"}),
            ("/v2/embed", text | {"model": name, "input_type": "search_document"}),
        ),
    }
    for prompt, requests in bodies.items():
        expected = model.encode(["Hello, world"], prompt_name=prompt)[0]
        for route, body in requests:
            answer = await asyncio.to_thread(plain_http.post, gateway.url + route, json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            assert np.abs(first_vector(answer.json()) - expected).max() <= 1e-5, (route, body)
        client = JobClient(gateway)
        job = await asyncio.to_thread(client.post, text | {"input_type": prompt})
        await asyncio.to_thread(client.wait_until_ended, job.json())
        vector = np.frombuffer((await asyncio.to_thread(client.vectors, job.json()))[0], dtype="<f4")
        assert np.abs(vector - expected).max() <= 1e-5


def first_vector(answer: dict[str, Any]) -> np.ndarray:
    """Returns the first vector of an answer in any dialect."""
    embeddings = answer["data"] if "data" in answer else answer["embeddings"]
    if isinstance(embeddings, dict):
        return np.asarray(embeddings["float"][0])
    return np.asarray(embeddings[0]["embedding"] if "data" in answer else embeddings[0])
