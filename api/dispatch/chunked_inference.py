"""Answers requests with texts that are longer than the model reads: chunk by chunk, or with the mean of the chunks.

A worker's tokenizer says where the tokens of a text are. Its chunks are inputs like others: they share batches, and
spread over the workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from api.dialects.long_text import CHUNKS
from api.dialects.request import InferenceRequest, InferenceResult, Span
from api.dialects.vectors import rows_of
from api.dispatch.chunking import spans_of
from api.dispatch.splitting import estimate_tokens
from api.memory_budget import HeldMemory, size_of_inputs
from shared.errors import DeadlineExceededError, InvalidRequestError, OverloadedError, TooLargeError
from shared.messages import TOKENIZE, Options, Values, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dispatch.chunking import Offsets

ComputeResult = Callable[[InferenceRequest, str, HeldMemory], Awaitable[InferenceResult]]

SPECIAL_TOKENS, PROMPT_TOKENS = 2, 32
"""Tokens that are kept free in a chunk: for the model's special ones, and for a prompt."""

MIN_CHUNK_PART = 0.25
"""An instruction leaves at least this part of what the model reads: smaller chunks would hardly have a meaning."""

CHUNK_PART = 0.75
ATTEMPTS = 4
"""If a chunk is cut all the same, as by a long prompt, all run again, with chunks of this part of their size."""

NO_MEMORY_RETRY_S = 1.0


class ChunkLimits(NamedTuple):
    """Bounds of the chunks: what the model reads of a text, in tokens (0: any number), and chunks of a request."""

    max_tokens: int
    max_chunks: int


class _Token(msgspec.Struct, gc=False):
    start: int
    stop: int


_TOKENS = msgspec.json.Decoder(list[_Token])


async def compute_in_chunks(
    compute: ComputeResult, request: InferenceRequest, limits: ChunkLimits, memory: HeldMemory, *, normalizes: bool
) -> InferenceResult:
    """Returns the result of a request with `long_text`.

    Args:
        compute: computes a request of texts that are short enough.
        request: the client's.
        limits: of the chunks.
        memory: that the request holds; grows by that of the chunks.
        normalizes: whether the model's vectors have length 1.

    Raises:
        InvalidRequestError: the request has token ids; its instruction is too long; or no text may be cut, and a chunk
            would be.
        TooLargeError: there are too many chunks.
        RedbatchError: as `compute` does.
    """
    deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    texts = [each for each in request.inputs if isinstance(each, str)]
    if len(texts) < len(request.inputs):
        raise InvalidRequestError("long_text is for texts, not for token ids.", param="long_text")
    max_tokens = _max_chunk_tokens(limits, request.options)
    # A token has a byte at least, but for characters that a tokenizer takes apart: such a text comes back cut.
    long = {i for i, text in enumerate(texts) if limits.max_tokens and len(text.encode()) > max_tokens}
    offsets: dict[int, Offsets] = {}
    for attempt in range(ATTEMPTS):
        missing = sorted(long - offsets.keys())
        offsets |= await _offsets_of(compute, request, missing, memory, deadline)
        spans = _cut(texts, offsets, max(1, int(max_tokens * CHUNK_PART**attempt)), limits.max_chunks)
        chunked = _chunk_request(request, texts, spans, deadline)
        if not memory.grow(size_of_inputs(chunked.inputs)):
            message = "The gateway has no memory for these chunks: try again."
            raise OverloadedError(message, retry_after_s=NO_MEMORY_RETRY_S)
        result = await compute(chunked, "", memory)
        truncated = {chunked.indices[i] for i in result.truncated}
        if not truncated:
            break
        long |= truncated
    return _answer_of(request, result._replace(truncated=sorted(truncated)), spans, normalizes=normalizes)


def _max_chunk_tokens(limits: ChunkLimits, options: Options) -> int:
    """Returns the tokens of a chunk, beside the prompt that the client names and the estimated ones of an instruction.

    Raises InvalidRequestError: the instruction leaves too few.
    """
    if options.instruction is None:
        return limits.max_tokens - SPECIAL_TOKENS - (PROMPT_TOKENS if options.prompt_name else 0)
    max_tokens = limits.max_tokens - SPECIAL_TOKENS - PROMPT_TOKENS - estimate_tokens(options.instruction)
    if limits.max_tokens and max_tokens < limits.max_tokens * MIN_CHUNK_PART:
        message = f"instruction: with each chunk the model reads it, and {limits.max_tokens} tokens in all: shorten it."
        raise InvalidRequestError(message, param="instruction")
    return max_tokens


def _answer_of(
    request: InferenceRequest, result: InferenceResult, spans: Sequence[Sequence[Span]], *, normalizes: bool
) -> InferenceResult:
    if result.truncated and request.options.truncate == "no":
        message = f"Input {result.truncated[0]}: it cannot be cut into chunks that the model reads whole."
        raise InvalidRequestError(message)
    if request.long_text == CHUNKS:
        return result._replace(spans=spans)
    return _mean(request, result, spans, normalizes=normalizes)


def _chunk_request(
    request: InferenceRequest, texts: Sequence[str], spans: Sequence[Sequence[Span]], deadline: float
) -> InferenceRequest:
    """Returns the request for the chunks, whose `indices` are those of their texts."""
    options = request.options._replace(truncate="right")
    if request.long_text != CHUNKS:  # vectors are cut and normalized after their mean
        options = options._replace(normalize=False, dimensions=None)
    chunks = [(i, text[start:stop]) for i, text in enumerate(texts) for start, stop in spans[i]]
    return request._replace(
        inputs=tuple(text for _, text in chunks),
        indices=tuple(i for i, _ in chunks),
        options=options,
        timeout_ms=_left_ms(deadline),
        single=False,
    )


async def _offsets_of(
    compute: ComputeResult, request: InferenceRequest, numbers: Sequence[int], memory: HeldMemory, deadline: float
) -> dict[int, Offsets]:
    """Returns the places of the tokens of these inputs, by their index."""
    if not numbers:
        return {}
    tokenize = request._replace(
        inputs=tuple(request.inputs[i] for i in numbers),
        indices=tuple(numbers),
        op=TOKENIZE,
        options=Options(prompt_name="", special_tokens=False),
        timeout_ms=_left_ms(deadline),
    )
    result = await compute(tokenize, "", memory)
    values = [each for part in result.parts if isinstance(part, Values) for each in part.values]
    offsets = {}
    for number, value in zip(numbers, values, strict=True):
        tokens = _TOKENS.decode(value)
        flat = (place for each in tokens for place in (each.start, each.stop))
        offsets[number] = np.fromiter(flat, np.int64, 2 * len(tokens)).reshape(-1, 2)
        await asyncio.sleep(0)  # a text may have tens of thousands of tokens
    return offsets


def _left_ms(deadline: float) -> int:
    left_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
    if left_ms < 1:
        raise DeadlineExceededError("No answer in time for all chunks of these texts: allow more time.")
    return left_ms


def _cut(texts: Sequence[str], offsets: Mapping[int, Offsets], max_tokens: int, max_chunks: int) -> list[list[Span]]:
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
    parts = zip(np.split(rows, numbers), np.split(weights, numbers), strict=True)
    means = np.stack([np.average(own, axis=0, weights=weight) for own, weight in parts])
    vectors = _finish(means, request.options, normalizes=normalizes).astype("<f4")
    part = Vectors("", 0, len(vectors), vectors.shape[1], vectors.tobytes(), revision=result.revision)
    return result._replace(parts=[part])


def _tokens_of(result: InferenceResult) -> Iterator[int]:
    """Yields the tokens of each chunk; the same for all if the model reports none."""
    for part in result.parts:
        if isinstance(part, Vectors):
            yield from part.tokens if sum(part.tokens) else (1,) * part.n


def _finish(means: NDArray[np.float64], options: Options, *, normalizes: bool) -> NDArray[np.float64]:
    cut = means[:, : options.dimensions]
    if not (normalizes if options.normalize is None else options.normalize):
        return cut
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return np.asarray(cut / np.where(lengths > 0, lengths, 1.0))
