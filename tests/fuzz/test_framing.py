"""The independent reading of streams and answers, by which a gateway is judged."""

from __future__ import annotations

import pytest

from tests.fuzz.answers import Answer, AnswerReader, MalformedAnswerError
from tests.fuzz.framing import End, Framing, read_stream
from tests.fuzz.judge import SENTINEL_ID, UNPARSED, WrongAnswerError, check_answers, check_complete

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: p\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

STREAMS = {
    b"": (0, End.CLEAN),
    b"\r\n\r\n" + GET + b"\r\n": (1, End.CLEAN),
    GET.replace(b" ", b"  ") + b"\r\n": (1, End.CLEAN),
    GET + b"\r\n" + POST + b"Content-Length: 2\r\n\r\nab": (2, End.CLEAN),
    POST + b"Content-Length: 3\r\n\r\nab": (0, End.PARTIAL),
    GET + b"Connection: a, close\r\n\r\n" + GET + b"\r\n": (1, End.CLOSED),
    GET.replace(b"1.1", b"1.0") + b"\r\n" + GET: (1, End.CLOSED),
    GET: (0, End.PARTIAL),
    GET + b"A : b\r\n\r\n": (0, End.BROKEN),
    GET + b"A: b\r\n c\r\n\r\n": (0, End.BROKEN),
    GET + b"A: b\nB: c\r\n\r\n": (0, End.BROKEN),
    POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab": (0, End.BROKEN),
    POST + b"Content-Length: +2\r\n\r\nab": (0, End.BROKEN),
    POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n": (0, End.BROKEN),
    POST + b"Transfer-Encoding: xchunked\r\n\r\n": (0, End.BROKEN),
    POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n": (0, End.BROKEN),
    POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n": (0, End.BROKEN),
    CHUNKED.replace(b"chunked", b", chunked,") + b"0\r\n\r\n": (1, End.CLEAN),
    POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n": (1, End.CLEAN),
    CHUNKED + b"2;a=b\r\nab\r\n0\r\nA: b\r\n\r\n" + GET + b"\r\n": (2, End.CLEAN),
    CHUNKED + b"2\r\nabc\r\n0\r\n\r\n": (0, End.BROKEN),
    CHUNKED + b"2\nab\r\n0\r\n\r\n": (0, End.BROKEN),
    CHUNKED + b"-2\r\nab\r\n0\r\n\r\n": (0, End.BROKEN),
    CHUNKED + b"2\r\nab\r\n": (0, End.PARTIAL),
    b"CONNECT x:1 HTTP/1.1\r\n\r\n": (0, End.BROKEN),
    b"\x16\x03\x01\r\n\r\n": (0, End.BROKEN),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_has_the_requests_whose_ends_are_certain(stream: bytes) -> None:
    """What could be read in two ways ends the reading."""
    framing = read_stream(stream)
    assert (len(framing.requests), framing.end) == STREAMS[stream]


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED_OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_answers_are_read_as_they_arrive(size: int) -> None:
    """An answer to HEAD has no body, whatever its length says; an interim response counts with its answer."""
    reader = AnswerReader([b"GET", b"HEAD", b"POST", b"GET"])
    data = OK + OK[:-2] + CONTINUE + CHUNKED_OK + b"HTTP/1.1 204 No Content\r\n\r\n" + OK[:-1]
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    assert [(each.status, each.body, each.continues) for each in reader.answers] == [
        (200, b"ok", 0),
        (200, b"", 0),
        (200, b"ok", 1),
        (204, b"", 0),
    ]
    assert reader.rest == OK[:-1]


@pytest.mark.parametrize(
    "data",
    [
        b"ok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\na: b\nc\r\n\r\nok",
        OK + b"ok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nokk\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_response_is_found(data: bytes) -> None:
    """A body without a length or with two, and bytes after the end, are faults."""
    with pytest.raises(MalformedAnswerError):
        AnswerReader([]).feed(data)


def answer(status: int = 200, request_id: bytes = b"p", *, closes: bool = False, continues: int = 0) -> Answer:
    """Returns an answer with the id of a request."""
    fields = {b"x-request-id": request_id} | ({b"connection": b"close"} if closes else {})
    return Answer(status, fields, b"{}", continues)


ONE = read_stream(POST + b"\r\n")
BROKEN = read_stream(POST + b"A : b\r\n\r\n")
CUT_OFF = read_stream(POST + b"Content-Length: 2\r\n\r\n")
UNNAMED = read_stream(GET + b"\r\n")

WRONG = {
    "two answers": (ONE, [answer(), answer()]),
    "a server error": (ONE, [answer(500)]),
    "unavailable": (ONE, [answer(503)]),
    "a deadline that was not set": (ONE, [answer(504)]),
    "the answer of another": (ONE, [answer(request_id=b"q")]),
    "an id from nowhere": (UNNAMED, [answer(request_id=b"trailer")]),
    "an error without an id": (ONE, [Answer(404, {b"content-type": b"application/json"}, b"{}", 0)]),
    "an unwanted continue": (ONE, [answer(continues=1)]),
    "two answers to what is no request": (BROKEN, [answer(400, closes=True), answer()]),
    "a request after what is no request": (BROKEN, [answer(request_id=SENTINEL_ID)]),
    "two answers to half a request": (CUT_OFF, [answer(404), answer(400)]),
    "the error of what follows": (ONE, [Answer(400, {b"connection": b"close"}, UNPARSED, 0)]),
    "an answer after the last one": (read_stream((POST + b"\r\n") * 2), [answer(400, closes=True), answer()]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_are_found(name: str) -> None:
    """Each rule of the judge can be broken."""
    framing, answers = WRONG[name]
    with pytest.raises(WrongAnswerError):
        check_answers(framing, answers, names_timeout=False)


RIGHT = {
    "one": (ONE, [answer()]),
    "none": (ONE, []),
    "a client error": (ONE, [answer(404)]),
    "an early answer": (CUT_OFF, [answer(413, closes=True)]),
    "an id of the gateway's": (UNNAMED, [answer(request_id=b"0" * 32)]),
    "bytes that are no request": (
        BROKEN,
        [Answer(400, {b"connection": b"close"}, b"Invalid HTTP request received.", 0)],
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass(name: str) -> None:
    """An answer may also be refused, or come before the end of its request."""
    framing, answers = RIGHT[name]
    check_answers(framing, answers, names_timeout=False)


def test_a_missing_answer_is_found() -> None:
    """Unless an error closed the connection, or the form of a request is one that a server may refuse."""
    framing = read_stream((POST + b"\r\n") * 2)
    with pytest.raises(WrongAnswerError):
        check_complete(framing, [answer()])
    check_complete(framing, [answer(413, closes=True)])
    check_complete(read_stream((POST + b"\r\n") + b"BREW /a HTTP/1.1\r\n\r\n"), [answer()])
    check_answers(Framing(), [], names_timeout=False)


def test_a_late_answer_is_right_for_a_client_that_sets_a_timeout() -> None:
    """The only server error that a client can cause."""
    check_answers(ONE, [answer(504)], names_timeout=True)
