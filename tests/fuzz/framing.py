"""What requests a stream of bytes holds, by RFC 9112: an independent reading to compare the gateway's with.

It is strict: a head or a body whose end is in doubt ends the reading. Servers and proxies that read such bytes in
different ways can be made to see different requests (request smuggling), so a gateway may answer it once, with an
error, and must then close.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum

METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")
MAX_PLAIN_BYTES, MAX_PLAIN_FIELDS, MAX_PLAIN_TRAILER = 400, 12, 60
HEAD_END = b"\r\n\r\n"
_LINE_ENDS = b"\r\n"
_PLAIN_PATH = re.compile(rb"(/[a-zA-Z0-9_.=?&-]+)+|/")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) +([!-~]+) +HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t -~\x80-\xff]*)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;%b(?:=(?:%b|\"[ !#-\\[\]-~]*\"))?)*" % (_TOKEN, _TOKEN))
_LENGTH = re.compile(rb"[0-9]+")


class End(Enum):
    """How a stream ends."""

    CLEAN = "after a request"
    PARTIAL = "within a request"
    BROKEN = "at bytes that are no request, or one whose end is in doubt"
    CLOSED = "after a request that closes the connection"


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        method: in its first line.
        request_ids: the values of its fields X-Request-Id.
        expects_continue: whether it may get a 100 Continue.
        is_plain: whether its head is such that no server refuses it for its form: a usual method and path, few fields.
    """

    method: bytes
    request_ids: tuple[bytes, ...]
    expects_continue: bool
    is_plain: bool


@dataclass
class Framing:
    """The complete requests of a stream, in their order, and how it ends.

    `next_request` is the one that follows, if its head is complete, and `rest` are the bytes behind `requests`.
    """

    requests: list[Request] = field(default_factory=list)
    end: End = End.CLEAN
    next_request: Request | None = None
    rest: bytes = b""

    @property
    def methods(self) -> list[bytes]:
        """The methods of all requests, with that of the rest."""
        return [*(each.method for each in self.requests), self.rest.partition(b" ")[0]]


class _BrokenError(Exception):
    """The bytes are no request, or its end is in doubt."""


class _PartialError(Exception):
    """The stream ends within a request."""


@dataclass(frozen=True)
class _Head:
    request: Request
    fields: dict[bytes, list[bytes]]
    is_http_1_0: bool

    @property
    def closes(self) -> bool:
        options = [each.strip().lower() for value in self.fields.get(b"connection", []) for each in value.split(b",")]
        return self.is_http_1_0 or b"close" in options


def read_stream(stream: bytes) -> Framing:
    """Returns the requests of a stream."""
    framing = Framing()
    position = 0
    while True:
        while stream[position : position + 1] in (b"\r", b"\n"):  # servers ignore empty lines before a request
            position += 1
        if position == len(stream):
            return framing
        framing.next_request, framing.rest = None, stream[position:]
        try:
            head_end = _find_head_end(stream, position)
            head = _read_head(stream[position:head_end])
            framing.next_request = head.request
            position, trailer_bytes = _skip_body(stream, head_end + len(HEAD_END), head)
        except (_BrokenError, _PartialError) as error:
            framing.end = End.BROKEN if isinstance(error, _BrokenError) else End.PARTIAL
            return framing
        framing.requests.append(
            replace(head.request, is_plain=head.request.is_plain and trailer_bytes < MAX_PLAIN_TRAILER)
        )
        framing.next_request, framing.rest = None, b""
        if head.closes:
            framing.end, framing.rest = End.CLOSED, stream[position:]
            return framing


def _find_head_end(stream: bytes, position: int) -> int:
    end = stream.find(HEAD_END, position)
    if end < 0:
        raise _PartialError
    return end


def _read_head(data: bytes) -> _Head:
    first, *lines = data.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None or line[1] == b"CONNECT":  # after which the bytes are no HTTP
        raise _BrokenError
    fields: dict[bytes, list[bytes]] = {}
    for each in lines:
        match = _FIELD.fullmatch(each)
        if match is None:
            raise _BrokenError
        fields.setdefault(match[1].lower(), []).append(match[2].rstrip(b" \t"))
    ids = fields.get(b"x-request-id", [])
    expects = b"100-continue" in [each.lower() for each in fields.get(b"expect", [])]
    is_plain = line[1] in METHODS and bool(_PLAIN_PATH.fullmatch(line[2])) and len(data) <= MAX_PLAIN_BYTES
    is_plain = is_plain and len(lines) <= MAX_PLAIN_FIELDS
    is_plain = is_plain and fields.get(b"transfer-encoding", [b"chunked"]) == [b"chunked"]
    return _Head(Request(line[1], tuple(ids), expects, is_plain), fields, line[3] == b"0")


def _skip_body(stream: bytes, position: int, head: _Head) -> tuple[int, int]:
    """Returns the end of a body, and the number of bytes of its trailer."""
    codings, lengths = head.fields.get(b"transfer-encoding", []), head.fields.get(b"content-length", [])
    if codings:
        names = [each for each in (word.strip(b" \t").lower() for word in b",".join(codings).split(b",")) if each]
        if lengths or head.is_http_1_0 or names[-1:] != [b"chunked"] or b"chunked" in names[:-1]:
            raise _BrokenError  # the last coding gives the end of the body; a server need not know the others
        return _skip_chunks(stream, position)
    if not lengths:
        return position, 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise _BrokenError
    return _advance(stream, position, int(lengths[0])), 0


def _skip_chunks(stream: bytes, position: int) -> tuple[int, int]:
    size = -1
    while size:
        line, position = _read_line(stream, position)
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise _BrokenError
        size = int(match[1], 16)
        if size:
            position = _advance(stream, position, size)
            if not _LINE_ENDS.startswith(stream[position : position + 2]):
                raise _BrokenError
            position = _advance(stream, position, 2)
    start = position
    while True:
        line, position = _read_line(stream, position)
        if not line:
            return position, position - start - 2
        match = _FIELD.fullmatch(line)
        if match is None or match[1].lower() in (b"content-length", b"transfer-encoding"):
            raise _BrokenError


def _read_line(stream: bytes, position: int) -> tuple[bytes, int]:
    end = stream.find(_LINE_ENDS, position)
    if end < 0:
        raise _PartialError
    return stream[position:end], end + 2


def _advance(stream: bytes, position: int, size: int) -> int:
    if position + size > len(stream):
        raise _PartialError
    return position + size
