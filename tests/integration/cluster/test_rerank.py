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
from torch.nn import Identity, Module, Sigmoid, Softmax
from transformers import AutoTokenizer

from shared.messages import CLASSIFIER_OPS, RERANKER_OPS
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.gateway.job_client import JobClient
from tests.integration.worker.test_minilm import mixed_texts
from tests.scoring_models import LABELS, build_language_model_reranker, build_scoring_model
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
    [ready] = worker.log_records("engine ready")
    expected_record = {
        "type": "reranker",
        "operations": sorted(RERANKER_OPS),
        "labels": ["LABEL_0"],
        "activation": "sigmoid",
        "max_input_tokens": 512,
        "packed": True,
    }
    assert expected_record.items() <= ready.items()
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


async def test_the_query_counts_with_each_document(cluster: GatewayCluster, tmp_path: Path) -> None:
    """A tenant's tokens are those of the pairs that the model reads, special tokens included."""
    folder = build_scoring_model(tmp_path / "my-reranker")
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(str(folder)))
    query, texts = "which animal is quick?", ["a fox", "the quick brown fox jumps", "word " * 600]
    body = {"query": query, "documents": texts, "timeout_ms": 60_000}
    answer = await asyncio.to_thread(plain_http.post, f"{gateway.url}/v1/rerank", json=body, timeout=90)
    pairs = AutoTokenizer.from_pretrained(folder)([query] * len(texts), texts, truncation=True, max_length=512)
    tokens = sum(map(len, pairs["input_ids"]))
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["total_tokens"] == tokens

    def counted() -> list[tuple[str, int, int]]:
        rows = plain_http.get(f"{gateway.url}/usage?group=model,operation").json()["rows"]
        return [(row["operation"], row["inputs"], row["tokens"]) for row in rows if row["model"] == cluster.queue]

    await wait_until(lambda: counted() == [("score", len(texts), tokens)], lambda: f"not counted: {counted()}")


async def test_a_language_model_without_a_template_ends_the_worker(cluster: GatewayCluster, tmp_path: Path) -> None:
    """With what to do, in place of scores that would be random."""
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    worker = await cluster.processes.start("worker", "gpuworker", cluster.env(model=tmp_path))
    assert await worker.wait_until_ended(timeout_s=60) == 2
    assert "chat_template.jinja" in worker.output


PROBLEMS = [
    ("single_label_classification", Softmax(dim=-1), "softmax"),
    ("multi_label_classification", Sigmoid(), "sigmoid"),
]


@pytest.mark.parametrize(("problem_type", "activation_fn", "activation"), PROBLEMS, ids=["one label", "several labels"])
async def test_requests_that_wait_for_a_classifier_have_its_labels(
    cluster: GatewayCluster, tmp_path: Path, problem_type: str, activation_fn: Module, activation: str
) -> None:
    """With the library's probabilities: of one text, and of a pair.

    The files say what the model offers before it is loaded, but only the loaded one reports its labels.
    """
    folder = build_scoring_model(tmp_path / "my-classifier", LABELS, problem_type=problem_type)
    gateway = await cluster.start_gateway()
    worker = await cluster.processes.start("worker", "gpuworker", cluster.env(model=folder))

    def refuses_to_embed() -> bool:
        answer = plain_http.post(f"{gateway.url}/embed", json={"text": "a"}, headers={"x-timeout-ms": "1"})
        return answer.status_code == 400

    await wait_until(refuses_to_embed, "the gateway knows what loads", timeout_s=30, poll_s=0.1)
    texts, pairs = ["a fox", "some dog jumps"], [("a fox", "jumps"), ("a dog", "sleeps")]
    async with plain_http.client(timeout=100, base_url=gateway.url, headers={"x-timeout-ms": "90000"}) as client:
        answers = await asyncio.gather(
            client.post("/classify", json={"input": texts}), client.post("/predict", json={"inputs": pairs})
        )
    assert [each.status_code for each in answers] == [200, 200], [each.text for each in answers]
    [ready] = worker.log_records("engine ready")
    assert (ready["operations"], ready["labels"], ready["activation"]) == (
        sorted(CLASSIFIER_OPS),
        list(LABELS),
        activation,
    )
    model = CrossEncoder(str(folder), device="cpu")
    classified = answers[0].json()["data"]
    expected = np.array([model.predict(text, activation_fn=activation_fn) for text in texts])
    assert np.abs(np.array([each["probs"] for each in classified]) - expected).max() <= 1e-5
    assert [each["label"] for each in classified] == [LABELS[best] for best in expected.argmax(1)]
    predicted = [{each["label"]: each["score"] for each in ranked} for ranked in answers[1].json()]
    assert [list(each.values()) for each in predicted] == [sorted(each.values(), reverse=True) for each in predicted]
    of_pairs = np.array([model.predict(pair, activation_fn=activation_fn) for pair in pairs])
    assert np.abs(np.array([[each[label] for label in LABELS] for each in predicted]) - of_pairs).max() <= 1e-5


async def test_a_language_model_reranks(cluster: GatewayCluster, tmp_path: Path) -> None:
    """With the library's scores, with an instruction and without; the longest pair is cut, or refused."""
    folder = build_language_model_reranker(tmp_path / "my-language-model")
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(str(folder)))
    [ready] = worker.log_records("engine ready")
    assert (ready["type"], ready["max_input_tokens"], ready["packed"]) == ("reranker", 512, False)
    texts = ["a fox jumps", "a car", "", "dog " * 600]
    pairs = [("a pet", text) for text in texts]
    body: dict[str, Any] = {"query": "a pet", "documents": texts, "model": "my-language-model"}
    model, scores = CrossEncoder(str(folder), device="cpu"), []
    async with plain_http.client(timeout=100, base_url=gateway.url, headers={"x-timeout-ms": "90000"}) as client:
        for task in (None, "Is it about animals?"):
            answer = await client.post("/v1/rerank", json=body | ({} if task is None else {"instruction": task}))
            assert (answer.status_code, answer.headers["x-truncated-inputs"]) == (200, "1"), answer.text
            found = {each["index"]: each["relevance_score"] for each in answer.json()["results"]}
            expected = model.predict(pairs, prompt=task, activation_fn=Sigmoid())
            assert np.abs(np.array([found[index] for index in range(len(texts))]) - expected).max() <= 1e-5
            scores.append(expected)
        assert np.abs(scores[0] - scores[1]).max() > 1e-3, "the instruction changes nothing"
        headers, body = {"x-model": "my-language-model"}, {"query": "a pet", "truncate": False}
        answer = await client.post("/rerank", json=body | {"texts": texts[:3]}, headers=headers)
        assert answer.status_code == 200, answer.text
        refused = await client.post("/rerank", json=body | {"texts": texts}, headers=headers)
    assert (refused.status_code, "less than 512 tokens. Given: 610." in refused.text) == (422, True), refused.text
