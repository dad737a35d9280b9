"""Parses inputs in lines of JSON, from a body that arrives in pieces. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import orjson

from api.dialects.long_integers import mark_long_integers
from api.dialects.parsing import check_parts
from api.dialects.strict_body import unknown_field_error
from api.dialects.text_options import TEXT_OPTIONS
from api.jobs.inputs import JobInput, check_pair, check_text, check_value
from api.jobs.kinds import PAIRS, TEXTS, VALUES, kinds_of
from shared.errors import InvalidRequestError, TooLargeError

if TYPE_CHECKING:
    from api.dispatch.size_limits import InputLimit

BYTES_PER_CHAR = 12
"""Maximum bytes of JSON per character, as in \\ud83d\\ude00."""

JSON_BYTES_PER_BYTE = 6
"""Maximum bytes of JSON per byte of a function's input, as in \\u0041 for a letter."""

MAX_FRAMING_BYTES = 4_096
"""Maximum bytes of a line beside its input."""

HEAD_BYTES = 2**16
"""Bytes at the start of a line that is too long in which its first value is sought."""

GOES_ON = (
    "goes on after its first JSON value: separate lines by line ends. With curl, send the file with --data-binary, "
    "since -d removes line ends."
)

LINE_FIELDS = ("text", "query", "input")

WHAT_LINES_ARE = 'send "...", {"text": "..."}, {"query": "...", "text": "..."} or {"input": ...}.'


class NdjsonReader:
    """Parses lines of one kind: texts (a string, or an object with a field `text`), pairs, or inputs of a function.

    A pair is an object with the texts `query` and `text`, an input of a function one with a field `input`, which is any
    JSON value. An object has no other field. Empty lines at the end are no inputs;
    elsewhere they are refused, since results would then be those of other lines than the client counts.

    Args:
        max_inputs: maximum number of inputs.
        max_chars: maximum length of a text, and of a query, in characters.
        input_limit: of an input of a function.
        ops: the operations that the queue's workers offer; empty while they are unknown.

    Attributes:
        inputs: number of inputs so far.
        kind: that of all of them, of api.jobs.kinds.KINDS; None before the first line.
    """

    def __init__(
        self, max_inputs: int, max_chars: int, input_limit: InputLimit, ops: AbstractSet[str] = frozenset()
    ) -> None:
        self._max_inputs = max_inputs
        self._max_chars = max_chars
        self._input_limit = input_limit
        self._max_line_bytes = {
            TEXTS: max_chars * BYTES_PER_CHAR + MAX_FRAMING_BYTES,
            PAIRS: 2 * max_chars * BYTES_PER_CHAR + MAX_FRAMING_BYTES,
            VALUES: input_limit.max_bytes * JSON_BYTES_PER_BYTE + MAX_FRAMING_BYTES,
        }
        self._possible_kinds = kinds_of(ops)
        self._rest = bytearray()
        self._line = self._empty_line = 0
        self.inputs = 0
        self.kind: str | None = None

    @property
    def rest_bytes(self) -> int:
        """The bytes of the last line so far, which are in memory until it is complete."""
        return len(self._rest)

    def feed(self, piece: bytes) -> list[JobInput]:
        """Returns the inputs, or their errors, of the lines that this piece completes.

        Raises:
            InvalidRequestError: a line holds no input, one of another kind than the lines before, or an unknown field;
                the message names the line.
            TooLargeError: there are too many inputs, or a line is longer than any valid one.
        """
        end, *others = piece.split(b"\n")
        self._rest += end
        inputs: list[JobInput] = []
        if others:
            lines = [bytes(self._rest), *others[:-1]]
            self._rest = bytearray(others[-1])
            inputs = [value for line in lines if (value := self._parse_line(line)) is not None]
        self._check_length()
        return inputs

    def end(self) -> list[JobInput]:
        """Returns the input of the last line, unless the line is empty. Raises what `feed` raises."""
        line, self._rest = bytes(self._rest), bytearray()
        value = self._parse_line(line)
        return [] if value is None else [value]

    def _parse_line(self, line: bytes) -> JobInput | None:
        self._line += 1
        if not line.strip():
            self._empty_line = self._empty_line or self._line
            return None
        if self._empty_line:
            raise InvalidRequestError(f"Line {self._empty_line} is empty: send an input on each line.")
        try:
            check_parts(line)
            value = orjson.loads(mark_long_integers(line))
        except TooLargeError as error:
            raise TooLargeError(f"Line {self._line}: {error.message}") from None
        except orjson.JSONDecodeError:
            if _goes_on(line):
                raise InvalidRequestError(f"Line {self._line} {GOES_ON}") from None
            raise InvalidRequestError(f"Line {self._line} is not valid JSON.") from None
        self.inputs += 1
        if self.inputs > self._max_inputs:
            raise TooLargeError(
                f"There are over {self._max_inputs} inputs: split them into several jobs, or raise the setting "
                "max_job_inputs of the gateway."
            )
        return self._check_line(value)

    def _check_line(self, value: object) -> JobInput:
        """Returns the input of a line. Raises InvalidRequestError: it has none, or one of another kind."""
        fields = value if isinstance(value, dict) else {"text": value}
        self._check_fields(fields)
        match fields:
            case {"input": content} if len(fields) == 1:
                self._check_kind(VALUES)
                return check_value(content, self._input_limit)
            case {"query": str(query), "text": str(text)} if "input" not in fields:
                self._check_kind(PAIRS)
                return check_pair(text, query, self._max_chars)
            case {"text": str(text)} if len(fields) == 1:
                self._check_kind(TEXTS)
                return check_text(text, self._max_chars)
        raise InvalidRequestError(f"Line {self._line}: {WHAT_LINES_ARE}")

    def _check_length(self) -> None:
        """Raises an error if the line whose end has not arrived is longer than any that the job may hold."""
        kind = self.kind or max(self._possible_kinds, key=self._max_line_bytes.__getitem__)
        if len(self._rest) <= self._max_line_bytes[kind]:
            return
        if _goes_on(self._rest[:HEAD_BYTES].decode(errors="ignore")):
            raise InvalidRequestError(f"Line {self._line + 1} {GOES_ON}")
        bound = (
            f"a text has at most {self._max_chars} characters: shorten it, or raise the setting max_input_chars of the "
            "gateway."
        )
        if kind == VALUES:
            limit = self._input_limit
            bound = f"an input has at most {limit.max_bytes} bytes: send less, or raise the setting {limit.setting}."
        raise TooLargeError(f"Line {self._line + 1} is too long: {bound}")

    def _check_fields(self, value: dict[str, object]) -> None:
        for name in value:
            if name in TEXT_OPTIONS:
                message = f"{name} is for the whole job: send it in the query, as POST /jobs?{name}=..."
                raise InvalidRequestError(f"Line {self._line}: {message}", param=name)
            if name not in LINE_FIELDS:
                error = unknown_field_error(name, LINE_FIELDS)
                raise InvalidRequestError(f"Line {self._line}: {error.message}", param=error.param, quoted=error.quoted)

    def _check_kind(self, kind: str) -> None:
        self.kind = self.kind or kind
        if kind != self.kind:
            raise InvalidRequestError(
                f"Line {self._line}: send lines of one kind in a job: texts, pairs of a query and a text, or inputs of "
                "a function."
            )


def _goes_on(line: bytes | str) -> bool:
    """Returns whether something follows the first JSON value of a line."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return error.msg == "unexpected content after document"
    return False
