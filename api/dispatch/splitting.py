"""The entries of a request, and the bounds of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from api.dialects.request import InferenceRequest
from shared.codec import encode_body
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

MAX_OUTPUT_TOKENS = 500_000
"""Maximum number of tokens in an answer: each takes about 60 bytes of JSON."""


def estimate_tokens(value: Input) -> int:
    """Returns the estimated tokens of an input: the gateway has no tokenizer, and an error of a third is acceptable."""
    if isinstance(value, bytes):
        return len(value) // BYTES_PER_ID
    return len(value) // CHARS_PER_TOKEN + SPECIAL_TOKENS


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

    The entries of a `partial` request have one input each, and so have those whose outputs may be long.

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
    for start in range(0, len(inputs), size):
        error: RequestError | None = request.input_errors.get(start)
        if error is None:
            part = inputs[start : start + size]
            try:
                body = encode_body(Body(request.op, part, request.options))
            except UnicodeEncodeError:
                error = InvalidRequestError("An input holds a lone surrogate, which is not a character.")
            else:
                new_entries.append(NewEntry(start, len(part), sum(map(estimate_tokens, part)), body))
                continue
        if not request.partial:
            raise error
        failures.append(Failure("", start, 1, error.code, error.message))
    return new_entries, failures
