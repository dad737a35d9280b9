"""Answers requests with texts that are longer than the model reads: chunk by chunk, or with the mean of the chunks.

A worker's tokenizer says where the tokens of a text are. Its chunks are inputs like others: they share batches, and
spread over the workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from api.dialects.chunking import Span, spans_of
from api.dialects.long_text import CHUNKS
from api.dialects.request import InferenceRequest, InferenceResult
from api.dialects.vectors import rows_of
from api.memory_budget import HeldMemory, size_of_inputs
from shared.errors import DeadlineExceededError, InvalidRequestError, OverloadedError, TooLargeError
from shared.messages import TOKENIZE, Options, Values, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

Answer = Callable[[InferenceRequest, str, HeldMemory], Awaitable[InferenceResult]]

SPECIAL_TOKENS, PROMPT_TOKENS = 2, 32
"""Tokens that are kept free in a chunk: for the model's special ones, and for a prompt."""

NARROWER = 0.75
ATTEMPTS = 4
"""If a chunk is cut all the same, as by a long prompt, all are made narrower, and the request runs again."""

FULL_RETRY_S = 1.0


class TextLimits(NamedTuple):
    """Bounds of the chunks: what the model reads of a text, in tokens (0: any number), and chunks of a request."""

    max_tokens: int
    max_chunks: int


async def answer_long(
    answer: Answer, request: InferenceRequest, limits: TextLimits, memory: HeldMemory, *, normalizes: bool
) -> InferenceResult:
    """Returns the result of a request with `long_text`.

    Args:
        answer: computes a request of texts that are short enough.
        request: the client's.
        limits: of the chunks.
        memory: that the request holds; grows by that of the chunks.
        normalizes: whether the model's vectors have length 1.

    Raises:
        InvalidRequestError: the request has token ids, or the model's tokenizer shows no tokens.
        TooLargeError: there are too many chunks.
        RedbatchError: as `answer` does.
    """
    deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    texts = [each for each in request.inputs if isinstance(each, str)]
    if len(texts) < len(request.inputs):
        raise InvalidRequestError("long_text is for texts, not for token ids.", param="long_text")
    reserve = SPECIAL_TOKENS + (PROMPT_TOKENS if request.options.prompt_name else 0)
    max_tokens = limits.max_tokens - reserve
    offsets = {} if not limits.max_tokens else await _offsets_of(answer, request, texts, max_tokens, memory, deadline)
    for attempt in range(ATTEMPTS):
        spans = _cut(texts, offsets, max(1, int(max_tokens * NARROWER**attempt)), limits.max_chunks)
        chunks = tuple(text[start:stop] for text, own in zip(texts, spans, strict=True) for start, stop in own)
        if not memory.grow(size_of_inputs(chunks)):
            raise OverloadedError("The gateway has no memory for these chunks: try again.", retry_after_s=FULL_RETRY_S)
        result = await answer(_chunk_request(request, chunks, deadline), "", memory)
        if not result.truncated:
            break
    if request.long_text == CHUNKS:
        return result._replace(spans=spans)
    return _mean(request, result, spans, normalizes=normalizes)


def _chunk_request(request: InferenceRequest, chunks: tuple[str, ...], deadline: float) -> InferenceRequest:
    options = request.options
    if request.long_text != CHUNKS:  # vectors are cut and normalized after their mean
        options = options._replace(normalize=False, dimensions=None)
    return request._replace(
        inputs=chunks, options=options._replace(truncate="right"), timeout_ms=_left_ms(deadline), single=False
    )


async def _offsets_of(
    answer: Answer,
    request: InferenceRequest,
    texts: Sequence[str],
    max_tokens: int,
    memory: HeldMemory,
    deadline: float,
) -> dict[int, list[tuple[int, int]]]:
    """Returns the places of the tokens of each text that may be too long: a token has a character at least."""
    long = [i for i, text in enumerate(texts) if len(text) > max_tokens]
    if not long:
        return {}
    tokenize = request._replace(
        inputs=tuple(texts[i] for i in long),
        op=TOKENIZE,
        options=Options(prompt_name="", special_tokens=False),
        timeout_ms=_left_ms(deadline),
    )
    result = await answer(tokenize, "", memory)
    values = [orjson.loads(each) for part in result.parts if isinstance(part, Values) for each in part.values]
    return {i: [(each["start"], each["stop"]) for each in tokens] for i, tokens in zip(long, values, strict=True)}


def _left_ms(deadline: float) -> int:
    left_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
    if left_ms < 1:
        raise DeadlineExceededError("No answer in time for all chunks of these texts: allow more time.")
    return left_ms


def _cut(
    texts: Sequence[str], offsets: Mapping[int, Sequence[tuple[int, int]]], max_tokens: int, max_chunks: int
) -> list[list[Span]]:
    """Returns the chunks of each text: of one without `offsets` all of it. Raises TooLargeError: there are too many."""
    spans = [
        spans_of(text, offsets[i], max_tokens) if i in offsets else [Span(0, len(text))] for i, text in enumerate(texts)
    ]
    if (number := sum(map(len, spans))) > max_chunks:
        raise TooLargeError(
            f"These texts make {number} chunks, over the limit of {max_chunks}: send fewer or shorter ones at once, or "
            "raise the setting max_inputs of the gateway."
        )
    return spans


def _mean(
    request: InferenceRequest, result: InferenceResult, spans: Sequence[Sequence[Span]], *, normalizes: bool
) -> InferenceResult:
    """Returns a result with one vector for each text: the mean of its chunks, each weighted by its tokens."""
    rows, weights = np.asarray(rows_of(result)), np.fromiter(_tokens_of(result), np.float64)
    numbers = np.cumsum([len(own) for own in spans])[:-1]
    means = np.stack(
        [
            np.average(own, axis=0, weights=weight)
            for own, weight in zip(np.split(rows, numbers), np.split(weights, numbers), strict=True)
        ]
    )
    vectors = _finish(means, request.options, normalizes=normalizes).astype("<f4")
    part = Vectors("", 0, len(vectors), vectors.shape[1], vectors.tobytes())
    return result._replace(parts=[part], truncated=())


def _tokens_of(result: InferenceResult) -> Iterator[int]:
    for part in result.parts:
        if isinstance(part, Vectors):
            yield from part.tokens or (1,) * part.n


def _finish(means: NDArray[np.float64], options: Options, *, normalizes: bool) -> NDArray[np.float64]:
    cut = means[:, : options.dimensions]
    if not (normalizes if options.normalize is None else options.normalize):
        return cut
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return np.asarray(cut / np.where(lengths > 0, lengths, 1.0))
