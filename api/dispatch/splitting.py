"""The entries of a request, and the bounds of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from api.dialects.request import InferenceRequest
from shared.codec import encode_body, input_size
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.messages import DECODE, EMBED, EMBED_ALL, PREDICT, TOKENIZE, Body, Failure, Heartbeat, Input, NewEntry

CHARS_PER_TOKEN = 4
BYTES_PER_ID = 4
SPECIAL_TOKENS = 2
BYTES_PER_NUMBER = 4

MAX_OUTPUT_BYTES = 32 * 2**20
"""Maximum size of token vectors.

As JSON they are three times as large, which takes the gateway half a second to write.
"""

SHORT_OUTPUT_OPS = (EMBED, PREDICT)
"""Operations whose outputs, as far as is known, fit into the reply to an entry of several inputs."""

MAX_ENTRY_BYTES = 4 * 2**20
"""Maximum size of the inputs of a function in one entry, unless it has only one: workers divide entries, not inputs."""

MAX_OUTPUT_TOKENS = 500_000
"""Maximum number of tokens in an answer: each takes about 60 bytes of JSON."""


def estimate_tokens(value: Input) -> int:
    """Returns the estimated tokens of an input: the gateway has no tokenizer, and an error of a third is acceptable."""
    if isinstance(value, bytes):
        return len(value) // BYTES_PER_ID
    return len(value) // CHARS_PER_TOKEN + SPECIAL_TOKENS


def cost_of(op: str, part: Sequence[Input]) -> int:
    """Returns the cost of an entry: the estimated tokens of texts, or the number of inputs of a function.

    What an input costs a function only its class can say, and the gateway runs no code of users.
    """
    return len(part) if op == PREDICT else sum(map(estimate_tokens, part))


def min_input_limit(workers: Sequence[Heartbeat]) -> int:
    """Returns the lowest limit of an input of a function that workers announce, in bytes; 0 if they announce none."""
    return min((each.max_input_bytes for each in workers if each.max_input_bytes), default=0)


def check_input_sizes(request: InferenceRequest, workers: Sequence[Heartbeat]) -> InferenceRequest:
    """Checks the inputs of a function against the limit that its workers announce.

    Args:
        request: the client's request, which is within the gateway's own limit.
        workers: those that may run it. The lowest limit counts.

    Returns:
        The request; if it is `partial`, with an error for each input that is too large.

    Raises:
        TooLargeError: an input is too large, and the request is not `partial`.
    """
    limit = min_input_limit(workers)
    if request.op != PREDICT or not limit:
        return request
    errors: dict[int, RequestError] = {
        index: TooLargeError(
            f"Input {index} has {size} bytes, over the limit of {limit}: send less, or raise the setting "
            "max_model_input_bytes of the workers."
        )
        for index, each in enumerate(request.inputs)
        if (size := input_size(each)) > limit
    }
    if errors and not request.partial:
        raise next(iter(errors.values()))
    return request._replace(input_errors={**request.input_errors, **errors}) if errors else request


def inputs_per_entry(op: str, per_entry: int) -> int:
    """Returns the maximum inputs of an entry: `per_entry`, or one for an operation whose outputs may be long."""
    return per_entry if op in SHORT_OUTPUT_OPS else 1


def check_output_size(request: InferenceRequest, workers: Sequence[Heartbeat]) -> None:
    """Checks the size of an answer that may be larger than its request: it passes through Redis as well.

    Args:
        request: the client's request.
        workers: those that may run it. Their model bounds the number of vectors of a text.

    Raises:
        TooLargeError: the answer may exceed its maximum.
    """
    if request.op in (TOKENIZE, DECODE) and sum(map(_max_input_tokens, request.inputs)) > MAX_OUTPUT_TOKENS:
        raise TooLargeError(f"There may be over {MAX_OUTPUT_TOKENS} tokens in these inputs: send fewer at once.")
    if request.op == EMBED_ALL:
        max_tokens = max((each.max_input_tokens for each in workers), default=0) or MAX_OUTPUT_TOKENS
        tokens = sum(min(max_tokens, _max_input_tokens(each)) for each in request.inputs)
        size = tokens * max((each.dim for each in workers), default=0) * BYTES_PER_NUMBER
        if size > MAX_OUTPUT_BYTES:
            raise TooLargeError(
                f"The vectors of all tokens of these inputs may take {size >> 20} MiB, over the limit of "
                f"{MAX_OUTPUT_BYTES >> 20}: send fewer at once."
            )


def _max_input_tokens(value: Input) -> int:
    """Returns the maximum tokens of an input: one per character, and those that a model adds."""
    return (len(value) // BYTES_PER_ID if isinstance(value, bytes) else len(value)) + SPECIAL_TOKENS


def split(request: InferenceRequest, per_entry: int) -> tuple[list[NewEntry], list[Failure]]:
    """Splits a request into entries of up to `per_entry` inputs.

    The entries of a `partial` request have one input each, and so have those whose outputs may be long. An entry for a
    function has at most MAX_ENTRY_BYTES.

    Returns:
        The entries, and a failure for each input that cannot have one.

    Raises:
        InvalidRequestError: an input is not text that UTF-8 can carry, and the request is not `partial`.
        RequestError: an input has an error in `input_errors`, and the request is not `partial`.
    """
    new_entries: list[NewEntry] = []
    failures: list[Failure] = []
    inputs = request.inputs
    size = 1 if request.partial else inputs_per_entry(request.op, per_entry)
    for start, part in split_inputs(inputs, size, by_bytes=request.op == PREDICT):
        error: RequestError | None = request.input_errors.get(start)
        if error is None:
            try:
                body = encode_body(Body(request.op, part, request.options))
            except UnicodeEncodeError:
                error = InvalidRequestError("An input holds a lone surrogate, which is not a character.")
            else:
                counted_bytes = len(body) if request.op == PREDICT else 0
                new_entries.append(NewEntry(start, len(part), cost_of(request.op, part), body, counted_bytes))
                continue
        if not request.partial:
            raise error
        failures.append(Failure("", start, 1, error.code, error.message))
    return new_entries, failures


def split_inputs(
    inputs: tuple[Input, ...], max_inputs: int, *, by_bytes: bool
) -> Iterator[tuple[int, tuple[Input, ...]]]:
    """Yields the inputs in parts with the index of the first; `by_bytes`: of up to MAX_ENTRY_BYTES, or one input."""
    if not by_bytes:
        yield from ((start, inputs[start : start + max_inputs]) for start in range(0, len(inputs), max_inputs))
        return
    start = total = 0
    for index, each in enumerate(inputs):
        size = len(each)
        if index > start and (index - start >= max_inputs or total + size > MAX_ENTRY_BYTES):
            yield start, inputs[start:index]
            start, total = index, 0
        total += size
    yield start, inputs[start:]
