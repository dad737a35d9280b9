"""Hybrid models and multi-vector encoders through the whole cluster, over HTTP."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from shared.messages import DENSE, MULTI_VECTOR, PARTS, SPARSE
from tests import plain_http
from tests.hybrid_models import assert_parts, build_hybrid_model, reference
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.multi_vector_models import build_multi_vector_encoder

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.timeout(180)]

WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "7,", "8.", "slings", "arrows", "ünïcödé"]
NUM_REQUESTS = 60
HEADERS = {"x-timeout-ms": "120000"}


def some_texts() -> list[str]:
    """Returns texts of different lengths, of which some are cut."""
    seeded = random.Random(3)
    return [" ".join(seeded.choices(WORDS, k=length)) for length in (1, 1, 2, 3, 4, 6, 9, 12, 40, 60)]


async def test_parts_over_http(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Each is that of FlagEmbedding's definition, in concurrent requests that want different ones."""
    folder = await asyncio.to_thread(build_hybrid_model, tmp_path)
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(cache_max_bytes=2**20), cluster.start_worker(str(folder))
    )
    assert [each["type"] for each in worker.log_records("engine ready")] == ["hybrid"]
    texts = some_texts()
    expected = {text: await asyncio.to_thread(reference, folder, text) for text in texts}
    async with plain_http.client(timeout=150, base_url=gateway.url, headers=HEADERS) as client:
        sent = [send_one(client, number, texts) for number in range(NUM_REQUESTS)]
        for asked, named, found in await asyncio.gather(*sent):
            for text, parts in zip(asked, found, strict=True):
                assert_parts(parts, expected[text], named)
        await check_options(client, expected, texts[3])
        await check_refusals(client)
        info = await client.get("/info")
    assert info.json()["model_type"] == {"embedding": {"pooling": "cls"}}


async def send_one(
    client: httpx.AsyncClient, number: int, texts: list[str]
) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Sends a request to one of the routes; returns its texts, the parts that it names, and those of each text."""
    seeded = random.Random(number)
    asked = seeded.choices(texts, k=seeded.randint(1, 6))
    match number % 6:
        case 0:
            answer = await client.post("/embed", json={"texts": asked})
            named, parts = [DENSE], [{DENSE: each} for each in answer.json()["embeddings"]]
        case 1:
            answer = await client.post("/embed_sparse", json={"inputs": asked})
            named, parts = [SPARSE], [{SPARSE: each} for each in answer.json()]
        case 2:
            answer = await client.post("/embed_all", json={"inputs": asked})
            named, parts = [MULTI_VECTOR], [{MULTI_VECTOR: each} for each in answer.json()]
        case _:
            named = seeded.sample(PARTS, seeded.randint(1, 3))
            answer = await client.post("/embed", json={"texts": asked, "return": named})
            parts = answer.json()["embeddings"]
            assert all(list(each) == [name for name in PARTS if name in named] for each in parts)
    return asked, named, parts


async def check_options(client: httpx.AsyncClient, expected: dict[str, dict[str, Any]], text: str) -> None:
    """Checks a single text, the options of the dense part, number formats, and an input that fails."""
    single = await client.post("/embed", json={"text": text, "return": [SPARSE, DENSE, SPARSE]})
    assert_parts(single.json()["embedding"], expected[text], [DENSE, SPARSE])
    body = {"text": text, "return": list(PARTS), "dimensions": 8, "normalize": True}
    cut = (await client.post("/embed", json=body)).json()["embedding"]
    dense = expected[text][DENSE][:8]
    assert_parts(cut, expected[text] | {DENSE: dense / np.linalg.norm(dense)}, list(PARTS))
    bits = (await client.post("/embed", json=body | {"output_dtype": "ubinary"})).json()["embedding"]
    assert bits[DENSE] == np.packbits(dense > 0).tolist()
    assert bits[MULTI_VECTOR] == np.packbits(expected[text][MULTI_VECTOR] > 0, axis=-1).tolist()
    assert bits[SPARSE] == cut[SPARSE]
    partial = await client.post("/embed", json={"texts": [text, ""], "return": [DENSE, SPARSE], "on_error": "null"})
    found, failed = partial.json()["embeddings"]
    assert_parts(found, expected[text], [DENSE, SPARSE])
    assert (failed, partial.json()["errors"][0]["index"]) == (None, 1)
    default = await client.post("/", json={"inputs": text})
    assert_parts({DENSE: default.json()[0]}, expected[text], [DENSE])


async def check_refusals(client: httpx.AsyncClient) -> None:
    """Checks what is refused, with the name of the field."""
    for fields, message in (
        ({"return": []}, "return: "),
        ({"return": ["colbert"]}, "return[0]: send dense, sparse or multi_vector."),
        ({"return": "dense"}, "return: "),
        ({"return": ["sparse"], "long_text": "mean"}, "long_text: "),
    ):
        refused = await client.post("/embed", json={"text": "a", **fields})
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["message"].startswith(message), refused.text
    job = await client.post("/embed", json={"text": "a", "return": ["sparse"]}, headers={"prefer": "respond-async"})
    assert (job.status_code, "leave out the header Prefer, or return" in job.text) == (400, True)


async def test_late_interaction_over_http(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Vectors and scores of a multi-vector encoder are those of the library."""
    folder = await asyncio.to_thread(build_multi_vector_encoder, tmp_path)
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(str(folder)))
    model, texts = MultiVectorEncoder(str(folder), device="cpu"), some_texts()
    documents, [query] = model.encode_document(texts), model.encode_query(["to be"])
    scores = model.similarity([query], documents)[0].tolist()
    async with plain_http.client(timeout=150, base_url=gateway.url, headers=HEADERS) as client:
        every, of_query, named, ranked, scored, refused = await asyncio.gather(
            client.post("/embed_all", json={"inputs": texts}),
            client.post("/embed_all", json={"inputs": "to be", "prompt_name": "query"}),
            client.post("/embed", json={"texts": texts, "return": ["multi_vector"], "input_type": "document"}),
            client.post("/rerank", json={"query": "to be", "texts": texts}),
            client.post("/score", json={"text_1": "to be", "text_2": texts}),
            client.post("/embed", json={"text": "a", "return": ["dense", "multi_vector"]}),
        )
    for each, part, expected in zip(every.json(), named.json()["embeddings"], documents, strict=True):
        for vectors in (each, part[MULTI_VECTOR]):
            assert np.abs(np.asarray(vectors) - expected.numpy()).max() <= 1e-5
    assert np.abs(np.asarray(of_query.json()[0]) - query.numpy()).max() <= 1e-5
    assert [each["score"] for each in scored.json()["data"]] == pytest.approx(scores, abs=1e-4)
    assert {each["index"]: each["score"] for each in ranked.json()} == pytest.approx(dict(enumerate(scores)), abs=1e-4)
    assert [each["score"] for each in ranked.json()] == sorted((each["score"] for each in ranked.json()), reverse=True)
    assert (refused.status_code, "it returns multi_vector." in refused.text) == (400, True), refused.text
