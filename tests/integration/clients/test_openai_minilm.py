"""OpenAI's own client in front of the real model: its vectors, and the tokens that it has read."""

from __future__ import annotations

import numpy as np
import openai
import pytest
from sentence_transformers import SentenceTransformer

from gpuworker.models import parse_model
from tests.integration.clients.test_openai import async_openai_at
from tests.integration.gateway.gateway_cluster import GatewayCluster

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.slow]

TEXTS = ["a fox", "two dogs and a cat", "word " * 400]


@pytest.mark.timeout(120)
async def test_vectors_and_usage_are_the_models(cluster: GatewayCluster) -> None:
    """Of texts and of token ids: what the library gives for the same, and as many tokens as its tokenizer makes."""
    gateway = await cluster.start_gateway()
    await cluster.start_worker("minilm")
    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    ids = [model.tokenizer(text, truncation=True)["input_ids"] for text in TEXTS]
    expected = model.encode(TEXTS)
    async with async_openai_at(gateway) as client:
        for given in (TEXTS, ids):
            answer = await client.embeddings.create(model="minilm", input=given)
            found = np.asarray([each.embedding for each in answer.data])
            assert np.abs(found - expected).max() <= 1e-5
            assert answer.usage.prompt_tokens == sum(map(len, ids))
        with pytest.raises(openai.BadRequestError, match="402 tokens, and this model takes 256"):
            await client.embeddings.create(model="minilm", input=TEXTS, extra_body={"truncate": False})
        with pytest.raises(openai.BadRequestError, match="below 30522"):
            await client.embeddings.create(model="minilm", input=[[30_522]])
