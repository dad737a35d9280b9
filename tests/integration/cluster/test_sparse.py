"""A sparse encoder through the whole cluster, over HTTP: the weights are the library's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.integration.gateway.job_client import JobClient
from tests.integration.worker.test_minilm import mixed_texts
from tests.sparse_models import build_sparse_encoder

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.timeout(180)]


def dense(rows: Sequence[Sequence[dict[str, float]]], num_dimensions: int) -> np.ndarray:
    """Returns vectors with all their numbers, from answers with those above 0."""
    vectors = np.zeros((len(rows), num_dimensions))
    for vector, weights in zip(vectors, rows, strict=True):
        vector[[int(each["index"]) for each in weights]] = [each["value"] for each in weights]
    return vectors


def check_job(gateway: GatewayProcess, texts: list[str], expected: np.ndarray) -> None:
    """Checks that a job of texts has these weights; options that they have not are refused."""
    client = JobClient(gateway)
    refused = client.post({"texts": texts, "normalize": True})
    assert "normalize: a sparse encoder has no such option" in error_of(refused)["message"]
    new_job = client.job_of(client.post({"texts": [*texts, ""]}))
    job = client.wait_until_ended(new_job)
    assert (job["op"], job["done"], job["failed"]) == ("embed_sparse", len(texts), 1)
    *rows, failed = client.outputs(new_job)
    assert failed is None
    assert np.abs(dense(rows, expected.shape[1]) - expected).max() <= 1e-5


async def test_sparse_vectors_over_http(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Of texts in several entries; what needs another model is refused, and /info says what this one is."""
    folder = await asyncio.to_thread(build_sparse_encoder, tmp_path)
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(str(folder)))
    texts = [*(text for text in mixed_texts(40) if text), "x " * 700]
    answer = await asyncio.to_thread(
        plain_http.post,
        f"{gateway.url}/embed_sparse",
        json={"inputs": texts},
        headers={"x-timeout-ms": "120000"},
        timeout=150,
    )
    assert answer.status_code == 200, answer.text
    model = SparseEncoder(str(folder), device="cpu")
    num_long = sum(len(ids) > model.max_seq_length for ids in model.tokenizer(texts)["input_ids"])
    assert answer.headers["x-truncated-inputs"] == str(num_long)
    expected = model.encode(texts, convert_to_sparse_tensor=False).numpy()
    found = dense(answer.json(), expected.shape[1])
    assert np.abs(found - expected).max() <= 1e-5
    single = await asyncio.to_thread(
        plain_http.post, f"{gateway.url}/embed_sparse", json={"inputs": texts[0]}, timeout=60
    )
    assert np.abs(dense(single.json(), expected.shape[1]) - found[0]).max() <= 1e-5
    assert "x-truncated-inputs" not in single.headers
    for route in ("/", "/invocations"):
        default = await asyncio.to_thread(plain_http.post, gateway.url + route, json={"inputs": texts[0]}, timeout=60)
        assert default.json() == single.json(), default.text
    await asyncio.to_thread(check_job, gateway, texts, found)
    refused = await asyncio.to_thread(plain_http.post, f"{gateway.url}/embed", json={"text": "a"}, timeout=60)
    assert refused.status_code == 400, refused.text
    for route, body, message in (
        ("/embed", {"inputs": "a"}, "`normalize` is not available for SPLADE models, nor /embed without it"),
        ("/embed_all", {"inputs": "a"}, "`embed_all` is not available for SPLADE models"),
        ("/rerank", {"query": "a", "texts": ["b"]}, "model is not a re-ranker model"),
    ):
        refused = await asyncio.to_thread(plain_http.post, gateway.url + route, json=body, timeout=60)
        assert (refused.status_code, refused.json()["error_type"]) == (424, "Backend"), refused.text
        assert refused.json()["error"].startswith(f"Backend error: {message}. "), refused.text
    info = await asyncio.to_thread(plain_http.get, f"{gateway.url}/info")
    assert info.json()["model_type"] == {"embedding": {"pooling": "splade"}}


async def test_another_model_has_no_sparse_vectors(cluster: GatewayCluster) -> None:
    """TEI's error, at once."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("null"))
    refused = await asyncio.to_thread(plain_http.post, f"{gateway.url}/embed_sparse", json={"inputs": "a"}, timeout=60)
    assert (refused.status_code, refused.json()["error_type"]) == (424, "Backend")
    message = refused.json()["error"]
    assert message.startswith("Backend error: Model is not an embedding model with SPLADE pooling. ")
    assert "It offers: embed, embed_all" in message
