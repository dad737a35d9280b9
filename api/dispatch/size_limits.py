"""The size limits of a request that depend on its workers: of the inputs of a function, and of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from api.dialects.request import InferenceRequest
from api.dispatch.splitting import BYTES_PER_ID, SPECIAL_TOKENS
from shared.codec import input_size
from shared.errors import RequestError, TooLargeError
from shared.messages import DECODE, EMBED_ALL, MULTI_VECTOR, PREDICT, TOKENIZE, Heartbeat, Input

BYTES_PER_NUMBER = 4

UNKNOWN_DIM = 1_024
"""Assumed dimension of the vectors while no worker is known."""

MAX_OUTPUT_BYTES = 32 * 2**20
"""Maximum size of token vectors.

As JSON they are three times as large, which takes the gateway half a second to write.
"""

MAX_OUTPUT_TOKENS = 500_000
"""Maximum number of tokens in an answer: each takes about 60 bytes of JSON."""

WORKER_SETTING = "max_model_input_bytes of the workers"


class InputLimit(NamedTuple):
    """The limit of an input of a function, and the setting to raise for a higher one, with its process."""

    max_bytes: int
    setting: str


def input_limit(max_input_bytes: int, workers: Sequence[Heartbeat]) -> InputLimit:
    """Returns the limit of an input of a function: the gateway's `max_input_bytes`, or a lower one of its workers."""
    lowest = _min_announced(workers)
    if lowest and lowest < max_input_bytes:
        return InputLimit(lowest, WORKER_SETTING)
    return InputLimit(max_input_bytes, "max_input_bytes of the gateway")


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
    limit = _min_announced(workers)
    if request.op != PREDICT or not limit:
        return request
    errors: dict[int, RequestError] = {
        index: TooLargeError(
            f"Input {index} has {size} bytes, over the limit of {limit}: send less, or raise the setting "
            f"{WORKER_SETTING}."
        )
        for index, each in enumerate(request.inputs)
        if (size := input_size(each)) > limit
    }
    if errors and not request.partial:
        raise next(iter(errors.values()))
    return request._replace(input_errors={**request.input_errors, **errors}) if errors else request


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
    if request.op == EMBED_ALL or MULTI_VECTOR in request.options.parts:
        max_tokens = max((each.max_input_tokens for each in workers), default=0) or MAX_OUTPUT_TOKENS
        tokens = sum(min(max_tokens, _max_input_tokens(each)) for each in request.inputs)
        size = tokens * max((each.dim for each in workers), default=0) * BYTES_PER_NUMBER
        if size > MAX_OUTPUT_BYTES:
            raise TooLargeError(
                f"The vectors of all tokens of these inputs may take {-(-size >> 20)} MiB as float32, over the limit "
                f"of {MAX_OUTPUT_BYTES >> 20} MiB: send fewer at once."
            )


def _max_input_tokens(value: Input) -> int:
    """Returns the maximum tokens of an input: one per character, and those that a model adds."""
    return (len(value) // BYTES_PER_ID if isinstance(value, bytes) else len(value)) + SPECIAL_TOKENS


def _min_announced(workers: Sequence[Heartbeat]) -> int:
    """Returns the lowest limit of an input of a function that workers announce, in bytes; 0 if they announce none."""
    return min((each.max_input_bytes for each in workers if each.max_input_bytes), default=0)
