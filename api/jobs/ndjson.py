"""Parses texts in lines of JSON, from a body that arrives in pieces. Pure."""

from __future__ import annotations

import orjson

from api.jobs.inputs import JobInput, check_text
from shared.errors import InvalidRequestError, TooLargeError

BYTES_PER_CHAR = 12
"""Maximum bytes of JSON per character, as in \\ud83d\\ude00."""

MAX_FRAMING_BYTES = 4_096
"""Maximum bytes of a line beside its text."""


class NdjsonReader:
    """Parses lines, each a text: a string, or an object with a field `text`. Empty lines are skipped.

    Args:
        max_inputs: maximum number of texts.
        max_chars: maximum length of a text, in characters.

    Attributes:
        inputs: number of texts so far.
    """

    def __init__(self, max_inputs: int, max_chars: int) -> None:
        self._max_inputs = max_inputs
        self._max_chars = max_chars
        self._max_bytes = max_chars * BYTES_PER_CHAR + MAX_FRAMING_BYTES
        self._rest = b""
        self._line = 0
        self.inputs = 0

    def feed(self, piece: bytes) -> list[JobInput]:
        """Returns the texts, or their errors, of the lines that this piece completes.

        Raises:
            InvalidRequestError: a line is not a text; the message names the line.
            TooLargeError: there are too many texts, or a line is longer than any valid text.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self._max_bytes:
            raise TooLargeError(
                f"Line {self._line + len(lines) + 1} is too long: a text has at most {self._max_chars} characters."
            )
        return [value for line in lines if (value := self._parse_line(line)) is not None]

    def end(self) -> list[JobInput]:
        """Returns the text of the last line, unless the line is empty. Raises what `feed` raises."""
        line, self._rest = self._rest, b""
        value = self._parse_line(line)
        return [] if value is None else [value]

    def _parse_line(self, line: bytes) -> JobInput | None:
        self._line += 1
        if not line.strip():
            return None
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise InvalidRequestError(f"Line {self._line} is not valid JSON.") from None
        text = value.get("text") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise InvalidRequestError(f'Line {self._line}: send "..." or {{"text": "..."}}.')
        self.inputs += 1
        if self.inputs > self._max_inputs:
            raise TooLargeError(f"There are over {self._max_inputs} texts: split them into several jobs.")
        return check_text(text, self._max_chars)
