"""Parses inputs in lines of JSON, from a body that arrives in pieces. Pure."""

from __future__ import annotations

import orjson

from api.dialects.strict_body import unknown_field_error
from api.dialects.text_options import TEXT_OPTIONS
from api.jobs.inputs import JobInput, check_text, check_value
from shared.errors import InvalidRequestError, TooLargeError
from shared.messages import EMBED, PREDICT

BYTES_PER_CHAR = 12
"""Maximum bytes of JSON per character, as in \\ud83d\\ude00."""

MAX_FRAMING_BYTES = 4_096
"""Maximum bytes of a line beside its input."""


LINE_FIELDS = ("text", "input")


class NdjsonReader:
    """Parses lines: each a text (a string, or an object with a field `text`), or each an object with a field `input`.

    `input` is any JSON value, for a function. An object has no other field. Empty lines are skipped.

    Args:
        max_inputs: maximum number of inputs.
        max_chars: maximum length of a text, in characters. It bounds a line too, whatever it holds.
        max_input_bytes: maximum size of an input of a function.

    Attributes:
        inputs: number of inputs so far.
        op: the operation on all of them: EMBED, PREDICT, or None before the first line.
    """

    def __init__(self, max_inputs: int, max_chars: int, max_input_bytes: int) -> None:
        self._max_inputs = max_inputs
        self._max_chars = max_chars
        self._max_input_bytes = max_input_bytes
        self._max_bytes = max_chars * BYTES_PER_CHAR + MAX_FRAMING_BYTES
        self._rest = b""
        self._line = 0
        self.inputs = 0
        self.op: str | None = None

    def feed(self, piece: bytes) -> list[JobInput]:
        """Returns the inputs, or their errors, of the lines that this piece completes.

        Raises:
            InvalidRequestError: a line holds no input, one of another kind than the lines before, or an unknown field;
                the message names the line.
            TooLargeError: there are too many inputs, or a line is longer than any valid one.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self._max_bytes:
            raise TooLargeError(
                f"Line {self._line + len(lines) + 1} is too long: an input has at most {self._max_chars} characters."
            )
        return [value for line in lines if (value := self._parse_line(line)) is not None]

    def end(self) -> list[JobInput]:
        """Returns the input of the last line, unless the line is empty. Raises what `feed` raises."""
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
        self.inputs += 1
        if self.inputs > self._max_inputs:
            raise TooLargeError(f"There are over {self._max_inputs} inputs: split them into several jobs.")
        if isinstance(value, dict):
            self._check_fields(value)
        if isinstance(value, dict) and "input" in value and "text" not in value:
            self._check_kind(PREDICT)
            return check_value(value["input"], self._max_input_bytes)
        text = value.get("text") if isinstance(value, dict) and "input" not in value else value
        if not isinstance(text, str):
            raise InvalidRequestError(f'Line {self._line}: send "...", {{"text": "..."}} or {{"input": ...}}.')
        self._check_kind(EMBED)
        return check_text(text, self._max_chars)

    def _check_fields(self, value: dict[str, object]) -> None:
        for name in value:
            if name in TEXT_OPTIONS:
                message = f"{name} is for the whole job: send it in the query, as POST /jobs?{name}=..."
                raise InvalidRequestError(f"Line {self._line}: {message}", param=name)
            if name not in LINE_FIELDS:
                error = unknown_field_error(name, LINE_FIELDS)
                raise InvalidRequestError(f"Line {self._line}: {error.message}", param=error.param)

    def _check_kind(self, op: str) -> None:
        self.op = self.op or op
        if op != self.op:
            raise InvalidRequestError(f"Line {self._line}: send either texts or inputs of a function in one job.")
