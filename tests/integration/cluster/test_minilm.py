"""The real model through the whole cluster, over HTTP."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.worker.test_minilm import encode_with_library, entries_of, mixed_texts

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
