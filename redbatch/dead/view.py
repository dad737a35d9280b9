"""Dead letters as text and table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from redbatch.tables import labelled_line, plain_table
from shared.dead_letter_view import DIGEST_DIGITS, describe_binary, inputs_of, letter_as_dict, options_of
from shared.dead_letters import DeadLetter
from shared.process.log_text import printable_line
from shared.timestamps import format_timestamp

LABEL_WIDTH = 10


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
    facts = letter_as_dict(letter).items()
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


def _format_input(value: str | list[int] | bytes, *, with_text: bool) -> str:
    if isinstance(value, bytes):
        return describe_binary(value)
    if isinstance(value, list):
        return f"token ids {value}" if with_text else f"{len(value):,} token ids"
    return value if with_text else f"{len(value):,} characters, SHA-256 {_digest(value)}…"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
