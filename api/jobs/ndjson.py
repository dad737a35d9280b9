"""Texts that come as lines of JSON, piece by piece. Pure."""

from __future__ import annotations

import orjson

from api.jobs.inputs import Given, checked
from shared.errors import InvalidRequest, TooLarge

BYTES_PER_CHAR = 12
"""Of JSON at most, as in \\ud83d\\ude00."""

AROUND_BYTES = 4_096


class Lines:
    """Reads lines, each a text: a string, or an object with a field `text`. Empty lines are passed over.

    Args:
        most_inputs: how many there may be.
        most_chars: how long each may be.
    """

    def __init__(self, most_inputs: int, most_chars: int) -> None:
        self._most_inputs = most_inputs
        self._most_chars = most_chars
        self._most_bytes = most_chars * BYTES_PER_CHAR + AROUND_BYTES
        self._rest = b""
        self._line = 0
        self.inputs = 0

    def feed(self, piece: bytes) -> list[Given]:
        """Returns the texts of the lines that this piece completes, or what is wrong with them.

        Raises:
            InvalidRequest: a line is no text, and the message says which.
            TooLarge: these are too many, or a line is far too long.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self._most_bytes:
            raise TooLarge(f"Line {self._line + len(lines) + 1} is too long: a text has {self._most_chars} characters.")
        return [given for line in lines if (given := self._text(line)) is not None]

    def end(self) -> list[Given]:
        """Returns the text of the last line, if it is not empty. Raises as `feed` does."""
        line, self._rest = self._rest, b""
        given = self._text(line)
        return [] if given is None else [given]

    def _text(self, line: bytes) -> Given | None:
        self._line += 1
        if not line.strip():
            return None
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise InvalidRequest(f"Line {self._line} is not valid JSON.") from None
        text = found.get("text") if isinstance(found, dict) else found
        if not isinstance(text, str):
            raise InvalidRequest(f'Line {self._line}: send "..." or {{"text": "..."}}.')
        self.inputs += 1
        if self.inputs > self._most_inputs:
            raise TooLarge(f"There are over {self._most_inputs} texts: make several jobs of them.")
        return checked(text, self._most_chars)
