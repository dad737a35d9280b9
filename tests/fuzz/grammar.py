"""Streams of requests: valid ones, and mutations of their heads, their framing and their bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.fuzz.bodies import damaged, make_body
from tests.fuzz.choices import Choices
from tests.fuzz.routes import GETS, POSTS, Route

MAX_HEAD_BYTES, MAX_HEAD_FIELDS, MAX_URL_BYTES = 2_048, 20, 512
"""Limits of the gateway: smaller than the defaults, so that cases over them are small too."""

CASE_BYTES = 80
"""Random bytes of a case: enough for all decisions of nearly all cases."""

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\nX-Request-Id: smuggled\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """What a client sends on one connection, and at which bytes it is split."""

    stream: bytes
    cuts: tuple[int, ...] = ()

    def pieces(self, stream: bytes) -> list[bytes]:
        """Returns a stream that begins with that of the case, in pieces."""
        ends = sorted({each % (len(stream) + 1) for each in self.cuts} | {len(stream)})
        return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]


@dataclass
class _Request:
    """A request whose parts can be changed one by one. `framing` are the fields that give the end of the body."""

    method: bytes
    target: bytes
    fields: list[bytes]
    body: bytes
    version: bytes = b"HTTP/1.1"
    framing: list[bytes] = field(default_factory=list)
    line_end: bytes = b"\r\n"

    def encode(self) -> bytes:
        """Returns the bytes of the request."""
        first = b" ".join(each for each in (self.method, self.target, self.version) if each)
        return self.line_end.join([first, *self.fields, *self.framing, b"", b""]) + self.body


METHODS = (
    *(b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"PRI", b"M-SEARCH"),
    *(b"get", b"G\x00T", b"GET\t", b"\xff", b"A" * 300, b""),
)
TARGETS = (
    *(b"*", b"/", b"//", b"///", b"//x/embed", b"/embed/", b"/EMBED", b"/embed?", b"/embed?a=%", b"/embed#x"),
    *(b"http://x/embed", b"http://x", b"http://", b"HTTP://x:1/health?a", b"x:80", b"https://u:p@x:99999/embed"),
    *(b"/%00", b"/%", b"/%zz", b"/%2e%2e/health", b"/../health", b"/./health", b"/%ff%fe", b"/embed%2f", b"/%0d%0aa"),
    *(b"/\xff", b"/\x00", b"/a b", b"/\t", b"health", b"?a", b"", b"/jobs/%00", b"/jobs/..", b"/jobs/a.b?wait=-1"),
    *(b"/jobs/null." + b"f" * 32 + b"?wait=x", b"/jobs/" + b"9" * 300, b"/jobs/%F0%9F%98%80.%00/result?limit=1e9"),
    *(b"/v1/models/%2e%2e%2f", b"/v1/models/" + b"a/" * 40, b"/v1/models/%ff", b"/docs/static/../../app.py"),
    *(b"/docs/static/%2e%2e/docs.html", b"/docs/static/%00", b"/docs/static", b"/docs/static/" + b"a" * 260),
    *(b"/jobs?normalize=maybe", b"/jobs?normalize=true&normalize=false", b"/jobs?%ff=%00", b"/readyz?exclude=%00"),
    *(b"/" + b"u" * (MAX_URL_BYTES - 1), b"/" + b"u" * MAX_URL_BYTES, b"/" + b"%41" * 300, b"/a?" + b"&=" * 250),
)
VERSIONS = (b"HTTP/1.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3", b"http/1.1", b"HTTP/1.1 ", b"HTTP/11", b"")
NAMES = (
    *(b"Content-Type", b"Expect", b"Connection", b"Host", b"X-Timeout-Ms", b"X-Priority", b"X-Model", b"X-Request-Id"),
    *(b"Prefer", b"Accept", b"Idempotency-Key", b"Authorization", b"X-Api-Key", b"Cookie", b"Traceparent", b"Range"),
    *(b"Upgrade", b"TE", b"Trailer", b"Transfer-Encoding", b"Content-Length", b"Content-Encoding", b"Forwarded"),
    *(b"X-Forwarded-For", b"X-Forwarded-Proto", b"If-None-Match", b"Keep-Alive", b"Proxy-Connection", b":authority"),
)
FIELD_VALUES = (
    *(
        b"",
        b" ",
        b"0",
        b"-1",
        b"60000",
        b"+5",
        b"99999999999",
        b"1e9",
        b"\xb2",
        b"\xff\xfe",
        b"a,b",
        b'"',
        b'"\\',
        b";;",
    ),
    *(
        b"close",
        b"keep-alive",
        b"upgrade",
        b"websocket",
        b"h2c",
        b"close, keep-alive",
        b"100-continue",
        b"100-Continue",
    ),
    *(b"chunked", b"gzip", b"identity", b"chunked, chunked", b"gzip, chunked", b"xchunked", b"chunked\x0b", b"\x00"),
    *(
        b"respond-async",
        b'respond-async; wait="',
        b"a" * 64,
        b"a" * 65,
        b"null",
        b"type-names",
        b"bulk",
        b"../..",
        b"*/*",
    ),
    *(
        b"application/json; charset=utf-16",
        b"application/x+json",
        b"application/msgpack",
        b"application/x-npy",
        b"text/html",
    ),
    *(
        b"Bearer",
        b"Bearer rb_x",
        b"Basic !",
        b"bytes=0-1",
        b"bytes=-1,",
        b"127.0.0.1",
        b"[::1]:99999",
        b"(" * 300,
        b"v" * 2_500,
    ),
    b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00",
)
RAW_FIELDS = (
    *(
        b"A : b",
        b"A\t: b",
        b" A: b",
        b"A",
        b": b",
        b"A:\x00",
        b"A: b\rB: c",
        b"A: b\nB: c",
        b"A: b\r\n c",
        b"A: b\r\n\tc",
    ),
    *(b"A\x00: b", b"\xff: b", b"A(: b", b"A: \x7f", b"A:\x0b", b"A:b", b"A:\t b \t", b"a" * 300 + b": b", b"A b: c"),
    *(
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding:\r\n chunked",
        b"Content-Length:\r\n 4",
        b"Content-Length\t: 4",
    ),
    *(b"Transfer-Encoding:\x0bchunked", b"\tTransfer-Encoding: chunked", b"Content-Length : 0", b"Content-Length\t: 4"),
    b"X: y\r\r\nHost: z",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
    b"X: %b" % (b"v" * (MAX_HEAD_BYTES - 60)),
    b"\r\n".join(b"F%d: 1" % each for each in range(MAX_HEAD_FIELDS)),
)
"""Lines in place of a field."""

LENGTHS = (
    *(b"+%d", b"-%d", b"0x%x", b"0%d", b"%d ", b" %d", b"%d\t", b"%d,%d", b"%d, %d", b"%d_0", b"%d.0", b"%de0", b"%d;"),
    *(b"\xb2", b"", b"18446744073709551616", b"9223372036854775807", b"99999999999999999999", b"-0", b"%d\x00"),
)
CODINGS = (
    *(b"xchunked", b"chunked, chunked", b"chunked,", b",chunked", b"Chunked", b"CHUNKED", b"chunked ", b"\tchunked"),
    *(b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, identity", b'"chunked"', b"chunked;q=1"),
    *(b"chunked\x0b", b"chunke\x00d", b"", b"chun ked"),
)
TRAILERS = (
    *(b"", b"A: b\r\n", b"X-Request-Id: trailer\r\n", b"X-Model: nothing\r\n", b"Content-Length: 5\r\n"),
    *(b"Authorization: Bearer rb_x\r\n", b"Prefer: respond-async\r\n", b"Expect: 100-continue\r\n", b"A b: c\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"A: b\r\n c\r\n", b"A:\x00\r\n", b"A: b\n", b"A: " + b"v" * MAX_HEAD_BYTES),
    b"F: 1\r\n" * (MAX_HEAD_FIELDS + 1),
)
CHUNK_ENDS = (b"\r\n", b"\n", b"\r", b"", b"\r\n\r\n", b"x\r\n")
LAST_CHUNKS = (b"", b"0", b"00\r\n", b"0;a\r\n", b"-0\r\n", b"\r\n", b"0\n")
SIZE_FORMATS = (
    *(b"%x", b"%X", b"0%x", b"%x;a=b", b'%x;a="b"', b"%x ", b" %x", b"-%x", b"+%x", b"0x%x", b"%xg", b"%x;\n", b"%x\t"),
    *(b"ffffffffffffffff%x", b"10000000000000000%x", b"", b"%x;a\x00", b"%x; " + b"e" * 300),
)


def _make_request(choices: Choices, number: int) -> bytes:
    """Returns a request with an id of its number; a third of these are valid in all but their bodies."""
    route: Route = choices.pick(POSTS if choices.below(4) else GETS)
    fields = [b"Host: x", *(b"%b: %b" % each for each in route.fields)]
    if not choices.one_in(8):
        fields.append(b"X-Request-Id: r%d" % number)
    body = make_body(choices, route) if route.bodies else b""
    if route.bodies:
        fields.append(b"Content-Type: " + route.media_type)
    request = _Request(route.method, route.path, fields, body)
    kind = choices.below(32)
    if choices.one_in(4 if route.bodies else 16):
        _chunk(choices, request)
    elif route.bodies:
        request.framing = [b"Content-Length: %d" % len(body)]
    if kind >= len(UNCHANGED):
        MUTATIONS[(kind - len(UNCHANGED)) % len(MUTATIONS)](choices, request)
    return request.encode()


def _chunk(choices: Choices, request: _Request) -> None:
    """Sends the body in chunks; in half of the cases, something is wrong with these."""
    body, request.framing = request.body, [b"Transfer-Encoding: chunked"]
    at = choices.below(len(body) + 1)
    parts = [part for part in (body[:at], body[at:]) if part]
    size_format, end, last, trailer = b"%x", b"\r\n", b"0\r\n", b""
    match choices.below(8):
        case 4:
            size_format = choices.pick(SIZE_FORMATS)
        case 5:
            end = choices.pick(CHUNK_ENDS)
        case 6:
            trailer = choices.pick(TRAILERS)
        case 7:
            last = choices.pick(LAST_CHUNKS)
        case _:
            pass
    sizes = [size_format % len(part) if b"%" in size_format else size_format for part in parts]
    chunks = [size + b"\r\n" + part + end for size, part in zip(sizes, parts, strict=True)]
    request.body = b"".join(chunks) + last + trailer + b"\r\n"


def _change_method(choices: Choices, request: _Request) -> None:
    request.method = choices.pick(METHODS)


def _change_target(choices: Choices, request: _Request) -> None:
    request.target = choices.pick(TARGETS)


def _change_version(choices: Choices, request: _Request) -> None:
    request.version = choices.pick(VERSIONS)


def _add_field(choices: Choices, request: _Request) -> None:
    added = b"%b: %b" % (choices.pick(NAMES), choices.pick(FIELD_VALUES))
    request.fields.insert(choices.below(len(request.fields) + 1), added)


def _add_raw_field(choices: Choices, request: _Request) -> None:
    request.fields.insert(choices.below(len(request.fields) + 1), choices.pick(RAW_FIELDS))


def _expect(choices: Choices, request: _Request) -> None:
    request.fields.append(b"Expect: " + choices.pick((b"100-continue", b"100-Continue", b"200-ok", b"")))


def _lie_about_length(choices: Choices, request: _Request) -> None:
    request.framing = [b"Content-Length: %d" % max(0, len(request.body) + choices.below(41) - 20)]


def _malform_length(choices: Choices, request: _Request) -> None:
    size, text = len(request.body), choices.pick(LENGTHS)
    request.framing = [b"Content-Length: " + text % ((size,) * text.count(b"%"))]


def _smuggle(choices: Choices, request: _Request) -> None:
    """Gives the body two ends, by fields that contradict each other; another request is in it."""
    length = b"Content-Length: %d" % choices.pick((0, 4, len(SMUGGLED), len(SMUGGLED) + 5))
    coding = b"Transfer-Encoding: " + choices.pick((b"chunked", *CODINGS))
    fields = [[length, coding], [coding, length], [length, b"Content-Length: 0"], [coding, coding], [coding], [length]]
    request.framing = choices.pick(fields)
    request.body = choices.pick((b"", b"0\r\n\r\n")) + SMUGGLED


def _change_line_ends(choices: Choices, request: _Request) -> None:
    request.line_end = choices.pick((b"\n", b"\r", b"\r\r\n", b"\n\r\n", b" \r\n", b"\x00\r\n"))


UNCHANGED = range(12)
"""Kinds of requests whose head stays as it is."""

MUTATIONS = (
    *(_add_field, _add_raw_field, _smuggle, _change_target, _lie_about_length, _malform_length, _add_field),
    *(_expect, _change_method, _change_version, _change_line_ends),
)


def make_case(data: bytes) -> Case:
    """Returns one to three requests on one connection; in a tenth of the cases, their bytes are damaged.

    Args:
        data: random bytes, each of which leads to a case; zeros lead to simple ones.
    """
    choices = Choices(data)
    is_damaged, num_cuts = choices.one_in(10), choices.pick((0, 0, 0, 1, 2, 3))
    cuts = tuple(choices.below(2**12) for _ in range(num_cuts))
    stream = b"".join(_make_request(choices, each) for each in range(choices.pick((1, 1, 1, 2, 3))))
    if is_damaged:
        for _ in range(1 + choices.below(3)):
            stream = damaged(choices, stream)
    return Case(stream, cuts)


def cases() -> st.SearchStrategy[Case]:
    """Returns the strategy of all cases."""
    return st.binary(min_size=CASE_BYTES, max_size=CASE_BYTES).map(make_case)
