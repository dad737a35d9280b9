"""Dead letters as text, table and JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from redbatch.tables import labelled_line, plain_table
from redbatch.times import format_timestamp
from shared.codec import CodecError, decode_binary, decode_body, decode_ids
from shared.dead_letters import DeadLetter
from shared.messages import DEFAULT_OPTIONS, PREDICT
from shared.process.log_text import printable_line

DIGEST_DIGITS = 16
LABEL_WIDTH = 10


def as_dict(letter: DeadLetter, *, with_text: bool = False) -> dict[str, Any]:
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
    texts = inputs and [_describe_binary(each) if isinstance(each, bytes) else each for each in inputs]
    return result | {"options": options_of(letter), "texts": texts}


def as_table(queue: str, letters: Sequence[DeadLetter], total: int) -> Group:
    """Returns a table of dead letters, newest first; `total` is the number of all in the queue."""
    head = Text(f"Queue {printable_line(queue)}: {total:,} dead letter{'s' if total != 1 else ''}", style="bold")
    if not letters:
        return Group(head)
    table = plain_table()
    table.add_columns("id", "died (UTC)", no_wrap=True)
    table.add_columns("inputs", "attempts", justify="right")
    table.add_columns("worker", "error")
    for letter in letters:
        numbers = (f"{letter.inputs:,}", str(letter.attempts))
        died = format_timestamp(letter.died_ms)
        table.add_row(letter.letter_id, died, *numbers, letter.worker, letter.error)
    num_older = total - len(letters)
    hint = [Text(f"  and {num_older:,} older: --most {total} shows all", style="dim")] if num_older > 0 else []
    return Group(head, table, *hint)


def as_text(letter: DeadLetter, *, with_text: bool) -> Group:
    """Returns one dead letter in full. Unless `with_text`, inputs are hidden: length and digest distinguish them."""
    facts = as_dict(letter).items()
    lines = [labelled_line(name.replace("_", " "), str(value), LABEL_WIDTH) for name, value in facts]
    inputs = inputs_of(letter)
    if inputs is None:
        lines.append(Text("  inputs      not kept: too long, or unreadable by this version", style="dim"))
        return Group(*lines)
    if options := options_of(letter):
        lines.append(labelled_line("options", str(options), LABEL_WIDTH))
    for index, each in enumerate(inputs):
        lines.append(labelled_line(f"input {index}", _format_input(each, with_text=with_text), LABEL_WIDTH))
    if not with_text:
        lines.append(Text("  --show-text shows the inputs", style="dim"))
    return Group(*lines)


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


def _describe_binary(value: bytes) -> str:
    kind, data = decode_binary(value)
    return f"{kind}, {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]}…"


def options_of(letter: DeadLetter) -> dict[str, object]:
    """Returns the options of the request that differ from the defaults; empty if they were not kept."""
    try:
        options = DEFAULT_OPTIONS if letter.body is None else decode_body(letter.body).options
    except CodecError:
        return {}
    return {name: value for name, value in options._asdict().items() if value != getattr(DEFAULT_OPTIONS, name)}


def _format_input(value: str | list[int] | bytes, *, with_text: bool) -> str:
    if isinstance(value, bytes):
        return _describe_binary(value)
    if isinstance(value, list):
        return f"token ids {value}" if with_text else f"{len(value):,} token ids"
    return value if with_text else f"{len(value):,} characters, SHA-256 {_digest(value)}…"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
