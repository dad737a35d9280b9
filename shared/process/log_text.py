"""Log lines for people: `12:00:01 info    ready model=minilm`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def format_event(event: Mapping[str, object], *, brief: bool = False) -> str:
    """Returns a log record, which has at least a `msg`, as a line; a traceback follows in separate lines.

    `brief` omits time and level.
    """
    fields = dict(event)
    message = fields.pop("msg")
    time = str(fields.pop("ts", ""))[11:19]
    level = str(fields.pop("level", ""))
    fields.pop("service", None)
    trace = fields.pop("exception", None)
    parts = [] if brief else [time, f"{level:<7}"]
    line = " ".join([*parts, str(message), *(f"{key}={value}" for key, value in fields.items())])
    return f"{line}\n{trace}" if trace else line


def printable(text: str) -> str:
    """Returns a text without control sequences, which must not reach a terminal: a line may quote what a user sent."""
    return CONTROL.sub("", text)
