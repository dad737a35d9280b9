"""The real model through the whole cluster, as a client over HTTP sees it."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.worker.test_minilm import encoded, entries_of, mixed_texts

pytestmark = [pytest.mark.redis, pytest.mark.model]

AT_ONCE = 64


@pytest.mark.timeout(180)
async def test_vectors_over_http_equal_those_of_the_library(cluster: GatewayCluster) -> None:
    """Hundreds of mixed texts, 64 requests at once over two gateways: each has the vector of its own text."""
    await cluster.start_worker("minilm")
    gateways = [await cluster.start_gateway() for _ in range(2)]
    requests = entries_of([text for text in mixed_texts(400) if text])
    places = asyncio.Semaphore(AT_ONCE)

    async def ask(client: httpx.AsyncClient, number: int, texts: list[str]) -> list[list[float]]:
        async with places:
            url = f"{gateways[number % 2].url}/embed"
            answer = await client.post(url, json={"texts": texts, "timeout_ms": 120_000})
            assert answer.status_code == 200, answer.text
            vectors: list[list[float]] = answer.json()["embeddings"]
            return vectors

    async with plain_http.client(timeout=150, limits=httpx.Limits(max_connections=AT_ONCE)) as client:
        answers = await asyncio.gather(*(ask(client, i, texts) for i, texts in enumerate(requests)))
    found = np.asarray([vector for vectors in answers for vector in vectors], dtype=np.float32)
    expected = encoded([text for texts in requests for text in texts])
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((found * expected).sum(axis=1, dtype=np.float64) / norms).min() >= 0.99999
    assert np.abs(found - expected).max() <= 1e-5
