"""Dead letters as dictionaries for JSON: for `redbatch dead` and for the console of a gateway."""

from __future__ import annotations

import hashlib
from typing import Any

from shared.codec import CodecError, decode_binary, decode_body, decode_ids
from shared.dead_letters import DeadLetter
from shared.messages import DEFAULT_OPTIONS, PREDICT
from shared.timestamps import format_timestamp

DIGEST_DIGITS = 16


def letter_as_dict(letter: DeadLetter, *, with_text: bool = False) -> dict[str, Any]:
    """Returns a dead letter for JSON; its options and texts only if `with_text`."""
    result: dict[str, Any] = {
        "id": letter.letter_id,
        "died": format_timestamp(letter.died_ms),
        "submitted": format_timestamp(letter.submitted_ms),
        "request_id": letter.request_id,
        "entry_id": letter.entry_id,
        "lane": letter.lane,
        "inputs": letter.inputs,
        "attempts": letter.attempts,
        "worker": letter.worker,
        "error": letter.error,
    }
    if not with_text:
        return result
    inputs = inputs_of(letter)
    texts = inputs and [describe_binary(each) if isinstance(each, bytes) else each for each in inputs]
    return result | {"options": options_of(letter), "texts": texts}


def inputs_of(letter: DeadLetter) -> list[str | list[int] | bytes] | None:
    """Returns the inputs: texts, token ids or binary; None if they were not kept or are unreadable."""
    if letter.body is None:
        return None
    try:
        body = decode_body(letter.body)
    except CodecError:
        return None
    is_binary = body.op == PREDICT
    return [decode_ids(each) if isinstance(each, bytes) and not is_binary else each for each in body.inputs]


def describe_binary(value: bytes) -> str:
    """Returns kind, size and digest of a binary input, which is never shown."""
    kind, data = decode_binary(value)
    return f"{kind}, {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]}…"


def options_of(letter: DeadLetter) -> dict[str, object]:
    """Returns the options of the request that differ from the defaults; empty if they were not kept."""
    try:
        options = DEFAULT_OPTIONS if letter.body is None else decode_body(letter.body).options
    except CodecError:
        return {}
    return {name: value for name, value in options._asdict().items() if value != getattr(DEFAULT_OPTIONS, name)}
