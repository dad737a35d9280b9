"""How long chunks are: an instruction is read with each of them."""

from __future__ import annotations

import re

import numpy as np
import orjson
import pytest

from api.dialects.long_text import CHUNKS
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.chunked_inference import ChunkLimits, compute_in_chunks
from api.memory_budget import HeldMemory, MemoryBudget
from api.tenants import ShareHolder
from shared.errors import InvalidRequestError
from shared.messages import TOKENIZE, Options, Values, Vectors

LIMITS = ChunkLimits(max_tokens=512, max_chunks=1_000)
TEXT = "word " * 1_000


async def compute(request: InferenceRequest, _request_id: str, _memory: HeldMemory) -> InferenceResult:
    """Takes the place of a queue, with a token for each word."""
    texts = [str(each) for each in request.inputs]
    if request.op == TOKENIZE:
        tokens = [[{"start": m.start(), "stop": m.end()} for m in re.finditer(r"\S+", text)] for text in texts]
        return InferenceResult([Values("", 0, len(texts), tuple(map(orjson.dumps, tokens)))])
    rows = np.ones((len(texts), 2), dtype="<f4")
    return InferenceResult([Vectors("", 0, len(texts), 2, rows.tobytes())])


async def chunk_tokens(instruction: str | None) -> int:
    """Returns the tokens of the longest chunk of a text."""
    request = InferenceRequest((TEXT,), 1_000, options=Options(instruction=instruction), long_text=CHUNKS)
    with HeldMemory(MemoryBudget(2**20), ShareHolder("")) as memory:
        result = await compute_in_chunks(compute, request, LIMITS, memory, normalizes=True)
    return max(len(TEXT[each.start : each.stop].split()) for each in result.spans[0])


async def test_an_instruction_leaves_room_for_chunks() -> None:
    """Its tokens are estimated, as those of texts are: four characters each."""
    assert await chunk_tokens(None) == 510
    assert await chunk_tokens("w" * 480) == 510 - 32 - 122


async def test_an_instruction_that_leaves_too_little_is_refused() -> None:
    """Chunks of a few tokens would make vectors without a meaning."""
    with pytest.raises(InvalidRequestError, match="instruction: with each chunk the model reads it") as caught:
        await chunk_tokens("w" * 1_600)
    assert caught.value.param == "instruction"
