"""What answers a connection has returned: a strict reading of HTTP/1.1 responses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+): ?([\t -~\x80-\xff]*)")
_CHUNK_SIZE = re.compile(rb"[0-9a-f]{1,8}")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_BODY = (204, 304)
UNREAD = (400, 414, 431)
"""Of heads that are refused before they are read to the end, and so before their method counts."""


class MalformedAnswerError(AssertionError):
    """What the gateway has written is no HTTP response."""


@dataclass(frozen=True)
class Answer:
    """A final response. `continues` counts the interim responses (100 Continue) before it."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes
    continues: int

    @property
    def closes(self) -> bool:
        """Whether the connection is closed after it."""
        return self.fields.get(b"connection", b"").lower() == b"close"


class AnswerReader:
    """Reads the answers of one connection as they arrive.

    Args:
        methods: of the requests, in their order.

    Attributes:
        answers: those that have arrived completely.
    """

    def __init__(self, methods: Sequence[bytes]) -> None:
        self._methods = methods
        self._data = bytearray()
        self._continues = 0
        self.answers: list[Answer] = []

    @property
    def rest(self) -> bytes:
        """The begin of an answer that is not complete."""
        return bytes(self._data)

    @property
    def continues(self) -> int:
        """The number of interim responses since the last answer."""
        return self._continues

    def feed(self, data: bytes) -> None:
        """Reads more bytes. Raises MalformedAnswerError."""
        self._data += data
        while self._data:
            if self._data.startswith(_CONTINUE):
                del self._data[: len(_CONTINUE)]
                self._continues += 1
            elif not self._read_answer():
                return

    def _read_answer(self) -> bool:
        """Reads one answer; returns whether it was complete."""
        head_end = self._data.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        first, *lines = bytes(self._data[:head_end]).split(b"\r\n")
        line = _STATUS_LINE.fullmatch(first)
        if line is None or line[1].startswith(b"1"):
            raise MalformedAnswerError(f"no status line: {first[:200]!r}")
        status, fields = int(line[1]), _read_fields(lines)
        method = self._methods[len(self.answers)] if len(self.answers) < len(self._methods) else b""
        start = head_end + 4
        end, body = start, b""
        is_head = method == b"HEAD" and not (status in UNREAD and fields.get(b"connection") == b"close")
        if not is_head and status not in NO_BODY:
            found = self._read_body(start, fields)
            if found is None:
                return False
            end, body = found
        del self._data[:end]
        self.answers.append(Answer(status, fields, body, self._continues))
        self._continues = 0
        return True

    def _read_body(self, start: int, fields: dict[bytes, bytes]) -> tuple[int, bytes] | None:
        """Returns the end of a body and its content, or None if it is not complete."""
        length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
        if (length is None) == (coding is None) or coding not in (None, b"chunked"):
            raise MalformedAnswerError(f"content-length {length!r}, transfer-encoding {coding!r}")
        if length is not None:
            if not length.isdigit():
                raise MalformedAnswerError(f"content-length {length!r}")
            end = start + int(length)
            return (end, bytes(self._data[start:end])) if end <= len(self._data) else None
        return self._read_chunks(start)

    def _read_chunks(self, position: int) -> tuple[int, bytes] | None:
        body = b""
        while True:
            line_end = self._data.find(b"\r\n", position)
            if line_end < 0:
                return None
            line = bytes(self._data[position:line_end])
            if not _CHUNK_SIZE.fullmatch(line):
                raise MalformedAnswerError(f"chunk size {line[:200]!r}")
            start, size = line_end + 2, int(line, 16)
            end = start + size + 2
            if end > len(self._data):
                return None
            if self._data[end - 2 : end] != b"\r\n":
                raise MalformedAnswerError("a chunk without an end")
            body += self._data[start : start + size]
            position = end
            if not size:
                return position, body


def _read_fields(lines: Sequence[bytes]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for each in lines:
        match = _FIELD.fullmatch(each)
        if match is None:
            raise MalformedAnswerError(f"no field: {each[:200]!r}")
        name = match[1].lower()
        if name in fields and name in (b"content-length", b"transfer-encoding", b"connection", b"content-type"):
            raise MalformedAnswerError(f"two fields {name!r}")
        fields[name] = match[2]
    return fields
