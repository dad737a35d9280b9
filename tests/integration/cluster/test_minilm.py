"""The real model through the whole cluster, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import quantize_embeddings

from gpuworker.model_spec import parse_model
from tests import plain_http
from tests.integration.embed.embed_command import embed
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
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


TASK = "Instruct: Find texts about {}.\nQuery: "
PROMPTS = {"query": "query: ", "passage": "passage: ", "task": TASK.format("worlds")}


@pytest.mark.timeout(180)
async def test_an_input_type_puts_the_prompt_of_its_purpose_before_texts(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    """In each API's words, at once, as a job and by `redbatch embed`: the vectors are those of `encode` with it."""
    model = SentenceTransformer(parse_model("minilm").path, prompts=PROMPTS)
    await asyncio.to_thread(model.save, str(tmp_path / "prompted"))
    calibration = model.encode([f"text {number}" for number in range(50)])
    ranges = np.vstack([calibration.min(axis=0), calibration.max(axis=0)])
    np.save(tmp_path / "ranges.npy", ranges)
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(),
        cluster.start_worker(str(tmp_path / "prompted"), int8_ranges=str(tmp_path / "ranges.npy")),
    )
    name = (await asyncio.to_thread(plain_http.get, f"{gateway.url}/v1/models")).json()["data"][0]["id"]
    text = {"texts": ["Hello, world"]}
    for prompt, requests in requests_of(name).items():
        expected = model.encode(["Hello, world"], prompt_name=prompt)[0]
        for route, body in requests:
            answer = await asyncio.to_thread(plain_http.post, gateway.url + route, json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            assert np.abs(first_vector(answer.json()) - expected).max() <= 1e-5, (route, body)
        client = JobClient(gateway)
        for named in ({"model": f"{name}-{prompt}"}, {"model": name, "prompt_name": prompt}):
            job = await asyncio.to_thread(client.post, text | named)
            await asyncio.to_thread(client.wait_until_ended, job.json())
            vector = np.frombuffer((await asyncio.to_thread(client.vectors, job.json()))[0], dtype="<f4")
            assert np.abs(vector - expected).max() <= 1e-5
    await check_command(gateway, tmp_path, expected, prompt)
    await asyncio.to_thread(check_instructions, gateway.url, name, model)
    await asyncio.to_thread(check_ranges, gateway.url, name, model, ranges)


async def check_command(gateway: GatewayProcess, folder: Path, expected: np.ndarray, prompt: str) -> None:
    """Checks the vector that `redbatch embed` writes with this prompt."""
    (folder / "texts.txt").write_text("Hello, world\n")
    done = await embed(gateway, folder / "texts.txt", folder / "vectors.npy", "--prompt-name", prompt)
    assert done.returncode == 0, done.stderr
    assert np.abs(np.load(folder / "vectors.npy")[0] - expected).max() <= 1e-5


def requests_of(name: str) -> dict[str, tuple[tuple[str, dict[str, Any]], ...]]:
    """Returns the routes and bodies that put a prompt before a text, by the name of the prompt."""
    openai, text = {"model": name, "input": ["Hello, world"]}, {"texts": ["Hello, world"]}
    return {
        "query": (
            ("/embed", text | {"input_type": "query"}),
            ("/embed", text | {"prompt_name": "query"}),
            ("/v1/embeddings", openai | {"input_type": "query"}),
            ("/v1/embeddings", openai | {"task": "retrieval.query"}),
            ("/v2/embed", text | {"model": name, "input_type": "search_query"}),
            ("/embed", text | {"model": f"{name}-query"}),
            ("/v1/embeddings", openai | {"model": f"{name}-query"}),
        ),
        "passage": (
            ("/batch_embed", text | {"input_type": "document"}),
            ("/batch_embed", text | {"prompt_name": "passage"}),
            ("/v1/embeddings", openai | {"task": "retrieval.passage"}),
            ("/v2/embed", text | {"model": name, "input_type": "search_document"}),
            ("/v1/embeddings", openai | {"model": f"{name}-passage"}),
        ),
    }


def check_instructions(url: str, name: str, model: SentenceTransformer) -> None:
    """An instruction takes the place of the task in the prompt that has one, on each route."""
    text, task = {"texts": ["Hello, world"], "model": name}, {"instruction": "Find texts about greetings."}
    expected = model.encode(["Hello, world"], prompt=TASK.format("greetings"))[0]
    requests = (
        ("/embed", text | task),
        ("/batch_embed", text | task | {"prompt_name": "task"}),
        ("/v1/embeddings", {"model": name, "input": ["Hello, world"]} | task),
        ("/v2/embed", text | task),
    )
    for route, body in requests:
        answer = plain_http.post(url + route, json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert np.abs(first_vector(answer.json()) - expected).max() <= 1e-5, route
    refused = plain_http.post(f"{url}/embed", json=text | task | {"input_type": "query"})
    assert (refused.status_code, "this model has task." in refused.text) == (400, True), refused.text
    refused = plain_http.post(f"{url}/embed", json=text | {"model": f"{name}-query", "input_type": "query"})
    assert (refused.status_code, "leave one of them out" in refused.text) == (400, True), refused.text
    unknown = plain_http.post(f"{url}/embed", json=text | {"model": "unknown-query"})
    assert unknown.status_code == 404, unknown.text


def check_ranges(url: str, name: str, model: SentenceTransformer, ranges: np.ndarray) -> None:
    """Whole numbers are those of sentence-transformers with these ranges, or beside them by a rounding of float32."""
    texts = [f"sentence {number}" for number in range(20)]
    vectors = model.encode(texts)
    for kind, dtype in (("int8", np.int8), ("uint8", np.uint8)):
        expected = quantize_embeddings(vectors, kind, ranges=ranges)  # type: ignore[arg-type]
        for route, body in (
            ("/embed", {"texts": texts, "output_dtype": kind}),
            ("/v1/embeddings", {"model": name, "input": texts, "embedding_type": kind}),
            ("/v2/embed", {"model": name, "texts": texts, "embedding_types": [kind]}),
        ):
            answer = plain_http.post(url + route, json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            rows = [each["embedding"] for each in found["data"]] if "data" in found else found["embeddings"]
            whole = np.asarray(rows[kind] if isinstance(rows, dict) else rows, dtype=dtype)
            difference = np.abs(whole.astype(int) - np.asarray(expected).astype(int))
            assert difference.max() <= 1
            assert (difference > 0).mean() < 0.002
    cut = plain_http.post(f"{url}/embed", json={"texts": texts, "output_dtype": "int8", "dimensions": 64})
    assert (cut.status_code, "ranges for all 384" in cut.text) == (400, True), cut.text


def first_vector(answer: dict[str, Any]) -> np.ndarray:
    """Returns the first vector of an answer in any dialect."""
    embeddings = answer["data"] if "data" in answer else answer["embeddings"]
    if isinstance(embeddings, dict):
        return np.asarray(embeddings["float"][0])
    return np.asarray(embeddings[0]["embedding"] if "data" in answer else embeddings[0])
