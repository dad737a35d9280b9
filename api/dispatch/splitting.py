"""The entries of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from sys import getsizeof

from api.dialects.request import InferenceRequest, InferenceResult
from api.memory_budget import size_of_inputs
from shared.codec import encode_body
from shared.errors import InvalidRequestError, RequestError
from shared.messages import (
    DEFAULT_OPTIONS,
    EMBED_ALL,
    EMBED_PARTS,
    EMBED_SPARSE,
    JSON_OPS,
    MULTI_VECTOR,
    PREDICT,
    VECTOR_OPS,
    Body,
    Failure,
    Input,
    NewEntry,
    Options,
    Reply,
)

CHARS_PER_TOKEN = 4
BYTES_PER_ID = 4
SPECIAL_TOKENS = 2

SHORT_OUTPUT_OPS = (*VECTOR_OPS, *JSON_OPS)
"""Operations whose outputs, as far as is known, fit into the reply to an entry of several inputs."""

MAX_ENTRY_BYTES = 4 * 2**20
"""Maximum size of the inputs of a function in one entry, unless it has only one: workers divide entries, not inputs."""


def estimate_tokens(value: Input) -> int:
    """Returns the estimated tokens of an input: the gateway has no tokenizer, and an error of a third is acceptable."""
    if isinstance(value, bytes):
        return len(value) // BYTES_PER_ID
    return len(value) // CHARS_PER_TOKEN + SPECIAL_TOKENS


def cost_of(op: str, part: Sequence[Input], max_tokens: int, options: Options = DEFAULT_OPTIONS) -> int:
    """Returns the cost of an entry: the estimated tokens of texts, or the number of inputs of a function.

    What an input costs a function only its class can say, and the gateway runs no code of users.

    Args:
        op: the operation.
        part: the inputs.
        max_tokens: that the model reads of a text; 0 if there is no maximum, or it is unknown. Workers measure their
            rate in these costs: with what is cut off, it would be far too high after some long texts.
        options: their query and instruction are read with each input, and each up to the maximum tokens that they have.
    """
    if op == PREDICT:
        return len(part)
    lengths = [estimate_tokens(each) for each in part]
    before = 0
    if options is not DEFAULT_OPTIONS:
        before = _tokens_before(options)
        max_tokens = min((each for each in (max_tokens, options.max_tokens) if each), default=0)
        if options.max_document_tokens is not None:
            lengths = [min(each, options.max_document_tokens) for each in lengths]
    tokens = sum(lengths) + before * len(part)
    if not max_tokens or tokens <= max_tokens or op not in (*VECTOR_OPS, EMBED_ALL, EMBED_SPARSE, EMBED_PARTS):
        return tokens
    return sum(min(max_tokens, before + each) for each in lengths)


def _tokens_before(options: Options) -> int:
    """Returns the estimated tokens of the query and the instruction, which the model reads with each input."""
    query, instruction = (0 if each is None else estimate_tokens(each) for each in (options.query, options.instruction))
    return min(query, options.max_query_tokens or query) + instruction


def cost_of_request(request: InferenceRequest) -> int:
    """Returns the cost of all entries of a request, if the model reads all of each text."""
    cost = cost_of(request.op, request.inputs, 0, request.options)
    return cost + sum(estimate_tokens(each) for each in request.queries if each is not None)


def size_of_request(request: InferenceRequest, per_entry: int) -> int:
    """Returns the bytes that the inputs of a request take until it is answered.

    Each entry has a copy of the request's query and instruction.
    """
    options, num_bytes = request.options, size_of_inputs(request.inputs)
    if request.queries:
        num_bytes += size_of_inputs([each for each in request.queries if each is not None])
    if options.query is not None or options.instruction is not None:
        num_entries = -(-len(request.inputs) // inputs_per_entry(request.op, per_entry, options.parts))
        copied = sum(getsizeof(each) for each in (options.query, options.instruction) if each is not None)
        num_bytes += copied * (1 + num_entries)
    return num_bytes


def inputs_per_entry(op: str, per_entry: int, parts: Sequence[str] = ()) -> int:
    """Returns the maximum inputs of an entry: `per_entry`, or one for an operation whose outputs may be long."""
    return per_entry if op in SHORT_OUTPUT_OPS and MULTI_VECTOR not in parts else 1


def split(request: InferenceRequest, per_entry: int, max_tokens: int = 0) -> tuple[list[NewEntry], list[Failure]]:
    """Splits a request into entries of up to `per_entry` inputs, all about equally large.

    The entries of a `partial` request have one input each, and so have those whose outputs may be long. An entry for a
    function has at most MAX_ENTRY_BYTES. `max_tokens` is as in `cost_of`.

    Returns:
        The entries, and a failure for each input that cannot have one. Positions of entries count the inputs that have
        one, so that the first entry is always at 0: workers count requests by it. See `merge_failures`.

    Raises:
        InvalidRequestError: an input is not text that UTF-8 can carry, and the request is not `partial`.
        RequestError: an input has an error in `input_errors`, and the request is not `partial`.
    """
    new_entries: list[NewEntry] = []
    failures: list[Failure] = []
    size = 1 if request.partial else inputs_per_entry(request.op, per_entry, request.options.parts)
    for start, part, options in _parts_of(request, size):
        error: RequestError | None = request.input_errors.get(start)
        if error is None:
            try:
                body = encode_body(Body(request.op, part, options))
            except UnicodeEncodeError:
                error = InvalidRequestError("An input holds a lone surrogate, which is not a character.")
            else:
                counted_bytes = len(body) if request.op == PREDICT else 0
                cost = cost_of(request.op, part, max_tokens, options)
                new_entries.append(NewEntry(start - len(failures), len(part), cost, body, counted_bytes))
                continue
        if not request.partial:
            raise error
        failures.append(Failure("", start, 1, error.code, error.message))
    return new_entries, failures


def merge_failures(replies: Sequence[Reply], failures: Sequence[Failure]) -> Sequence[Reply]:
    """Returns the replies to a request that `split` has divided, with its failures, at the positions of its inputs."""
    if not failures:
        return replies
    failed = {each.position for each in failures}
    positions = [index for index in range(len(replies) + len(failures)) if index not in failed]
    moved = (each._replace(position=positions[each.position]) for each in replies)
    return sorted([*moved, *failures], key=lambda reply: reply.position)


def build_result(replies: Sequence[Reply], failures: Sequence[Failure]) -> InferenceResult:
    """Returns the result of a request that `split` has divided, with its failures."""
    replies = merge_failures(replies, failures)
    results = [each for each in replies if not isinstance(each, Failure)]
    if not results:
        return InferenceResult(replies)
    number = len(results)
    queue_ms = inference_ms = tokenize_ms = 0.0
    batch_size = tokens = 0
    truncated: list[int] = []
    for each in results:
        timing = each.timing
        queue_ms += timing.queue_ms
        inference_ms += timing.inference_ms
        tokenize_ms += timing.tokenize_ms
        batch_size = max(batch_size, timing.batch_size)
        tokens += sum(each.tokens)
        truncated += [each.position + index for index in each.truncated]
    means = queue_ms / number, inference_ms / number
    return InferenceResult(replies, *means, batch_size, tokens, tokenize_ms / number, sorted(truncated))


def _parts_of(request: InferenceRequest, max_inputs: int) -> Iterator[tuple[int, tuple[Input, ...], Options]]:
    """Yields the inputs of each entry, with the index of the first and their options: an entry has one query."""
    if not request.queries:
        for start, part in split_inputs(request.inputs, max_inputs, by_bytes=request.op == PREDICT):
            yield start, part, request.options
        return
    begin = 0
    for query, group in groupby(request.queries):
        end = begin + len(list(group))
        options = request.options._replace(query=query)
        for start, part in split_inputs(request.inputs[begin:end], max_inputs, by_bytes=False):
            yield begin + start, part, options
        begin = end


def split_inputs(
    inputs: tuple[Input, ...], max_inputs: int, *, by_bytes: bool
) -> Iterable[tuple[int, tuple[Input, ...]]]:
    """Returns the inputs in parts with the index of the first.

    With `by_bytes` a part has up to MAX_ENTRY_BYTES, or one input. Otherwise all parts are about equally large, since
    each may go to another worker, and the last answer completes the request.
    """
    if by_bytes:
        return _split_by_bytes(inputs, max_inputs)
    if len(inputs) <= max_inputs:
        return ((0, inputs),)
    num_parts = -(-len(inputs) // max_inputs)
    size = -(-len(inputs) // num_parts)
    return [(start, inputs[start : start + size]) for start in range(0, len(inputs), size)]


def _split_by_bytes(inputs: tuple[Input, ...], max_inputs: int) -> Iterator[tuple[int, tuple[Input, ...]]]:
    start = total = 0
    for index, each in enumerate(inputs):
        size = len(each)
        if index > start and (index - start >= max_inputs or total + size > MAX_ENTRY_BYTES):
            yield start, inputs[start:index]
            start, total = index, 0
        total += size
    yield start, inputs[start:]
