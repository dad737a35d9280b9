"""A reranker through the whole cluster, over HTTP: each score is that of its pair by the library."""

from __future__ import annotations

import asyncio
import io
import random
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from torch.nn import Identity

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.gateway.job_client import JobClient
from tests.integration.worker.test_minilm import mixed_texts
from tests.scoring_models import LABELS, build_scoring_model
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model]

MAX_DOCUMENTS = 120
"""More than three entries hold."""

MAX_IN_FLIGHT = 16


def make_requests(num_pairs: int) -> list[tuple[str, list[str]]]:
    """Returns queries with their documents, `num_pairs` in all; a document may belong to several queries."""
    seeded = random.Random(7)
    texts = [text for text in mixed_texts(400) if text]
    requests: list[tuple[str, list[str]]] = []
    missing = num_pairs
    while missing:
        number = min(missing, seeded.randint(1, MAX_DOCUMENTS))
        requests.append((seeded.choice(texts)[:200], seeded.sample(texts, number)))
        missing -= number
    return requests


async def rank(client: httpx.AsyncClient, url: str, number: int, query: str, texts: list[str]) -> dict[int, float]:
    """Returns the logit of each text by its index, from a route that differs from request to request."""
    body: dict[str, Any] = {"query": query, "timeout_ms": 120_000}
    headers = {"x-timeout-ms": "120000"}
    if number % 2:
        answer = await client.post(f"{url}/rerank", json=body | {"texts": texts, "raw_scores": True}, headers=headers)
        assert answer.status_code == 200, answer.text
        return {each["index"]: each["score"] for each in answer.json()}
    body |= {"documents": texts, "use_activation": False}
    answer = await client.post(f"{url}/v1/rerank", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return {each["index"]: each["relevance_score"] for each in answer.json()["results"]}


def logits_of_job(client: JobClient, pairs: list[tuple[str, str]]) -> np.ndarray:
    """Returns the logits of pairs from a job of lines."""
    new_job = client.job_of(client.post_lines([{"query": query, "text": text} for query, text in pairs]))
    assert client.wait_until_ended(new_job)["done"] == len(pairs)
    file = client.get(f"{new_job['result_url']}?raw_scores=true", accept="application/x-npy")
    logits: np.ndarray = np.load(io.BytesIO(file.content))
    return logits[:, 0]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("num_pairs", [150, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.long])])
async def test_each_pair_has_its_score(cluster: GatewayCluster, tmp_path: Path, num_pairs: int) -> None:
    """In 16 concurrent requests to two gateways, whose pairs share batches, by two dialects; and in a job."""
    folder = build_scoring_model(tmp_path / "my-reranker")
    worker = await cluster.start_worker(str(folder))
    assert [(each["type"], each["packed"]) for each in worker.log_records("engine ready")] == [("reranker", True)]
    gateways = [await cluster.start_gateway() for _ in range(2)]
    requests = make_requests(num_pairs)
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def send(client: httpx.AsyncClient, number: int, query: str, texts: list[str]) -> dict[int, float]:
        async with slots:
            return await rank(client, gateways[number // 2 % 2].url, number, query, texts)

    async with plain_http.client(timeout=150, limits=httpx.Limits(max_connections=MAX_IN_FLIGHT)) as client:
        found = await asyncio.gather(*(send(client, i, *request) for i, request in enumerate(requests)))
    assert [list(each.values()) for each in found] == [sorted(each.values(), reverse=True) for each in found]
    actual = [scores[index] for scores, (_, texts) in zip(found, requests, strict=True) for index in range(len(texts))]
    pairs = [(query, text) for query, texts in requests for text in texts]
    in_job = await asyncio.to_thread(logits_of_job, JobClient(gateways[1]), pairs)
    expected = CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=Identity())
    assert len(actual) == num_pairs
    assert np.asarray(expected).std() > 0.01, "the scores are too much alike for a comparison"
    for each in (actual, in_job):
        assert np.abs(np.asarray(each) - expected).max() <= 1e-5
    body = {"query": "a", "texts": ["word " * 600], "truncate": False}
    refused = await asyncio.to_thread(plain_http.post, f"{gateways[0].url}/rerank", json=body, timeout=60)
    assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")
    assert "`inputs` must have less than 512 tokens. Given: 604." in refused.json()["error"]


async def test_a_language_model_without_a_template_ends_the_worker(cluster: GatewayCluster, tmp_path: Path) -> None:
    """With what to do, in place of scores that would be random."""
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    worker = await cluster.processes.start("worker", "gpuworker", cluster.env(model=tmp_path))
    assert await worker.wait_until_ended(timeout_s=60) == 2
    assert "chat_template.jinja" in worker.output


async def test_requests_that_wait_for_a_classifier_have_its_labels(cluster: GatewayCluster, tmp_path: Path) -> None:
    """The files say what the model offers before it is loaded, but only the loaded one reports its labels."""
    folder = build_scoring_model(tmp_path / "my-classifier", LABELS)
    gateway = await cluster.start_gateway()
    await cluster.processes.start("worker", "gpuworker", cluster.env(model=folder))

    def refuses_to_embed() -> bool:
        answer = plain_http.post(f"{gateway.url}/embed", json={"text": "a"}, headers={"x-timeout-ms": "1"})
        return answer.status_code == 400

    await wait_until(refuses_to_embed, "the gateway knows what loads", timeout_s=30, poll_s=0.1)
    headers = {"x-timeout-ms": "90000"}
    async with plain_http.client(timeout=100) as client:
        answers = await asyncio.gather(
            client.post(f"{gateway.url}/classify", json={"input": "a"}, headers=headers),
            client.post(f"{gateway.url}/predict", json={"inputs": "a"}, headers=headers),
        )
    assert [each.status_code for each in answers] == [200, 200], [each.text for each in answers]
    best = answers[0].json()["data"][0]["label"]
    labels = [each["label"] for each in answers[1].json()]
    assert (labels[0], set(labels)) == (best, set(LABELS))
