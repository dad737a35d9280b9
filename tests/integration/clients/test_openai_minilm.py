"""OpenAI's client with the real model: vectors and token counts."""

from __future__ import annotations

import numpy as np
import openai
import pytest
from sentence_transformers import SentenceTransformer

from gpuworker.model_spec import parse_model
from tests.integration.clients.test_openai import async_openai_at
from tests.integration.gateway.gateway_cluster import GatewayCluster

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.slow]

TEXTS = ["a fox", "two dogs and a cat", "word " * 400]


@pytest.mark.timeout(120)
async def test_vectors_and_usage_equal_the_library(cluster: GatewayCluster) -> None:
    """Texts and token ids get the library's vectors, and the usage is the tokenizer's number of tokens."""
    gateway = await cluster.start_gateway()
    await cluster.start_worker("minilm")
    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    ids = [model.tokenizer(text, truncation=True)["input_ids"] for text in TEXTS]
    expected = model.encode(TEXTS)
    async with async_openai_at(gateway) as client:
        for inputs in (TEXTS, ids):
            answer = await client.embeddings.create(model="minilm", input=inputs)
            actual = np.asarray([each.embedding for each in answer.data])
            assert np.abs(actual - expected).max() <= 1e-5
            assert answer.usage.prompt_tokens == sum(map(len, ids))
        with pytest.raises(openai.BadRequestError, match="402 tokens, and the maximum is 256"):
            await client.embeddings.create(model="minilm", input=TEXTS, extra_body={"truncate": False})
        with pytest.raises(openai.BadRequestError, match=r"Input 1: Token ids .* below 30522"):
            await client.embeddings.create(model="minilm", input=[[1], [30_522]])
