"""Log lines for people, `12:00:01 info    ready model=minilm`, and text that a terminal may show. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 except the tab and the newline, DEL and C1, which control a terminal; marks that change the direction of text;
separators that look like newlines; surrogates, which cannot be encoded."""

MODEL_LOADS = "the model is still loading"
"""The message of a worker whose model takes long; `redbatch up` shows the progress of its start itself."""

MODEL_FAILS = "the model cannot be served"
"""The message of a worker that ends, with the reason; `redbatch up` that ends with it reports the reason itself."""


def format_event(event: Mapping[str, object], *, brief: bool = False) -> str:
    """Returns a log record, which has at least a `msg`, as a line; a traceback follows in separate lines.

    `brief` omits time and level. A `reason`, which is a sentence, follows the message after a colon.
    """
    fields = dict(event)
    message, reason = fields.pop("msg"), fields.pop("reason", "")
    time = str(fields.pop("ts", ""))[11:19]
    level = str(fields.pop("level", ""))
    fields.pop("service", None)
    trace = fields.pop("exception", None)
    parts = [] if brief else [time, f"{level:<7}"]
    line = " ".join(
        [
            *parts,
            f"{message}: {reason}" if reason else str(message),
            *(f"{key}={value}" for key, value in fields.items()),
        ]
    )
    return f"{line}\n{trace}" if trace else line


def printable(text: str) -> str:
    r"""Returns a text with control characters as `\u001b`, so that none reaches a terminal: users may have sent them.

    Tabs and newlines stay. JSON stays valid, and has the same meaning.
    """
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_line(text: str) -> str:
    """Returns a text as `printable` does, in one line: newlines and tabs are escaped too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
