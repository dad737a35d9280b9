"""Dead letters as people and programs read them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from redbatch.timestamps import moment
from shared.codec import CodecError, decode_body, decode_ids
from shared.dead_letters import DeadLetter
from shared.messages import PLAIN

DIGEST_DIGITS = 16


def as_dict(letter: DeadLetter, *, with_text: bool = False) -> dict[str, Any]:
    """Returns a dead letter as JSON has it; its texts only if asked for."""
    found: dict[str, Any] = {
        "id": letter.letter_id,
        "died": moment(letter.died_ms),
        "submitted": moment(letter.submitted_ms),
        "request_id": letter.request_id,
        "entry_id": letter.entry_id,
        "lane": letter.lane,
        "inputs": letter.inputs,
        "attempts": letter.attempts,
        "worker": letter.worker,
        "error": letter.error,
    }
    return found | {"options": options_of(letter), "texts": inputs_of(letter)} if with_text else found


def as_table(queue: str, letters: Sequence[DeadLetter], total: int) -> Group:
    """Returns the dead letters of a queue, newest first, as people read them."""
    head = Text(f"Queue {queue}: {total:,} dead letter{'s' if total != 1 else ''}", style="bold")
    if not letters:
        return Group(head)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("id", "died (UTC)"):
        table.add_column(heading, no_wrap=True)
    for heading in ("inputs", "attempts"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("worker", "error"):
        table.add_column(heading, overflow="fold")
    for each in letters:
        numbers = (f"{each.inputs:,}", str(each.attempts))
        table.add_row(*map(Text, (each.letter_id, moment(each.died_ms), *numbers, each.worker, each.error)))
    rest = total - len(letters)
    more = [Text(f"  and {rest:,} older: --most {total} shows all", style="dim")] if rest > 0 else []
    return Group(head, table, *more)


def as_text(letter: DeadLetter, *, with_text: bool) -> Group:
    """Returns one dead letter whole. Its texts are hidden unless asked for: length and digest tell them apart."""
    facts = as_dict(letter).items()
    lines = [Text.assemble((f"  {name.replace('_', ' '):<10}  ", "bold"), str(value)) for name, value in facts]
    inputs = inputs_of(letter)
    if inputs is None:
        lines.append(Text("  texts       not kept: too long, or not what this version reads", style="dim"))
        return Group(*lines)
    if options := options_of(letter):
        lines.append(Text.assemble(("  options     ", "bold"), _printable(str(options))))
    for index, each in enumerate(inputs):
        shown = _shown(each, with_text=with_text)
        lines.append(Text.assemble((f"  text {index:<5}  ", "bold"), shown))
    if not with_text:
        lines.append(Text("  --show-text shows them", style="dim"))
    return Group(*lines)


def inputs_of(letter: DeadLetter) -> list[str | list[int]] | None:
    """Returns the inputs, texts or token ids; None when they were not kept, or cannot be read."""
    if letter.body is None:
        return None
    try:
        inputs = decode_body(letter.body).inputs
    except CodecError:
        return None
    return [decode_ids(each) if isinstance(each, bytes) else each for each in inputs]


def options_of(letter: DeadLetter) -> dict[str, object]:
    """Returns what was asked for beside the inputs; nothing when that was not kept."""
    try:
        options = PLAIN if letter.body is None else decode_body(letter.body).options
    except CodecError:
        return {}
    return {name: value for name, value in options._asdict().items() if value != getattr(PLAIN, name)}


def _shown(given: str | list[int], *, with_text: bool) -> str:
    if isinstance(given, list):
        return f"token ids {given}" if with_text else f"{len(given):,} token ids"
    return _printable(given) if with_text else f"{len(given):,} characters, SHA-256 {_digest(given)}…"


def _printable(text: str) -> str:
    """Returns a text without what would steer a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
