"""A request as entries."""

from __future__ import annotations

from collections.abc import Sequence

from api.dialects.request import Asked
from shared.codec import encode_body
from shared.errors import InvalidRequest, RequestError, TooLarge
from shared.messages import DECODE, EMBED, EMBED_ALL, PREDICT, TOKENIZE, Body, Draft, Failure, Heartbeat, Input

CHARS_PER_TOKEN = 4
BYTES_PER_ID = 4
SPECIAL_TOKENS = 2
BYTES_PER_NUMBER = 4

MOST_OUTPUT_BYTES = 32 * 2**20
"""Of the vectors of tokens: three times as much as JSON, which takes the gateway half a second to write."""

SHORT = (EMBED, PREDICT)
"""Operations whose outputs take no more, as far as is known, than what an entry of several inputs may be answered."""

MOST_READ = 500_000
"""Tokens to be shown: some 60 bytes of JSON each."""


def estimate_tokens(given: Input) -> int:
    """Returns about how many tokens an input has: the gateway holds no tokenizer, and a third off is good enough."""
    if isinstance(given, bytes):
        return len(given) // BYTES_PER_ID
    return len(given) // CHARS_PER_TOKEN + SPECIAL_TOKENS


def check_output(asked: Asked, workers: Sequence[Heartbeat]) -> None:
    """Sees that an answer that is larger than what it is of stays within bounds: it passes through Redis as well.

    Args:
        asked: what is asked for.
        workers: who may run it. What their model is bounds how many vectors a text has.

    Raises:
        TooLarge: it may be larger than that.
    """
    if asked.op in (TOKENIZE, DECODE) and sum(map(_most_tokens, asked.inputs)) > MOST_READ:
        raise TooLarge(f"There may be over {MOST_READ} tokens in these inputs: send fewer at once.")
    if asked.op == EMBED_ALL:
        most_tokens = max((each.max_input_tokens for each in workers), default=0) or MOST_READ
        tokens = sum(min(most_tokens, _most_tokens(each)) for each in asked.inputs)
        size = tokens * max((each.dim for each in workers), default=0) * BYTES_PER_NUMBER
        if size > MOST_OUTPUT_BYTES:
            raise TooLarge(
                f"The vectors of all tokens of these inputs may take {size >> 20} MiB, over the limit of "
                f"{MOST_OUTPUT_BYTES >> 20}: send fewer at once."
            )


def _most_tokens(given: Input) -> int:
    """Returns how many tokens an input has at most: that many characters, and those that a model adds."""
    return (len(given) // BYTES_PER_ID if isinstance(given, bytes) else len(given)) + SPECIAL_TOKENS


def split(asked: Asked, per_entry: int) -> tuple[list[Draft], list[Failure]]:
    """Returns the entries of a request.

    Those of one that may do without some inputs have one input each, and so have those whose answers may be long.

    Returns:
        Its entries, and what is said of inputs that cannot have one.

    Raises:
        InvalidRequest: an input is not text that UTF-8 can carry.
    """
    drafts: list[Draft] = []
    failures: list[Failure] = []
    inputs = asked.inputs
    size = per_entry if asked.op in SHORT and not asked.partial else 1
    for start in range(0, len(inputs), size):
        fault: RequestError | None = asked.refused.get(start)
        if fault is None:
            part = inputs[start : start + size]
            try:
                body = encode_body(Body(asked.op, part, asked.options))
            except UnicodeEncodeError:
                fault = InvalidRequest("An input holds a lone surrogate, which is no character.")
            else:
                drafts.append(Draft(start, len(part), sum(map(estimate_tokens, part)), body))
                continue
        if not asked.partial:
            raise fault
        failures.append(Failure("", start, 1, fault.code, fault.message))
    return drafts, failures
