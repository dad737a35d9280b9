"""A request as entries."""

from __future__ import annotations

from api.asked import Asked
from shared.codec import encode_body
from shared.errors import InvalidRequest, RequestError
from shared.messages import Body, Draft, Failure, Input

CHARS_PER_TOKEN = 4
BYTES_PER_ID = 4
SPECIAL_TOKENS = 2


def estimate_tokens(given: Input) -> int:
    """Returns about how many tokens an input has: the gateway holds no tokenizer, and a third off is good enough."""
    if isinstance(given, bytes):
        return len(given) // BYTES_PER_ID
    return len(given) // CHARS_PER_TOKEN + SPECIAL_TOKENS


def split(asked: Asked, per_entry: int) -> tuple[list[Draft], list[Failure]]:
    """Returns the entries of a request; one that may do without some inputs has an entry for each of the others.

    Returns:
        Its entries, and what is said of inputs that cannot have one.

    Raises:
        InvalidRequest: an input is not text that UTF-8 can carry.
    """
    drafts: list[Draft] = []
    failures: list[Failure] = []
    inputs = asked.inputs
    size = 1 if asked.partial else per_entry
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
