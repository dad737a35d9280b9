"""Parsing of HTTP answers, and outcomes of requests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbatch.bench.answers import Answer, AnswerParser, MalformedAnswerError, error_message, has_vectors, outcome_code

BODY = b'{"embedding": [1.0, 2.0]}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
    10,
    BODY[:10],
    len(BODY) - 10,
    BODY[10:],
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def make_parser(*, keep_bodies: bool = True) -> AnswerParser:
    """Returns a parser, which keeps the bodies by default."""
    return AnswerParser(keep_bodies=keep_bodies)


@pytest.mark.parametrize("sent", [PLAIN, CHUNKED, CONTINUED])
@given(data=st.data())
def test_an_answer_may_come_in_any_pieces(sent: bytes, data: st.DataObject) -> None:
    """Wherever the bytes are split, the answer is complete with its last byte and not before."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=5)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    parser = make_parser()
    answers = [parser.feed(piece) for piece in pieces]
    assert answers == [None] * (len(pieces) - 1) + [Answer(200, BODY, keep_alive=True)]


def test_a_connection_carries_many_answers() -> None:
    """A parser returns several answers in succession, with both kinds of framing."""
    parser = make_parser()
    bodies = [answer.body for sent in (PLAIN, CHUNKED, PLAIN) if (answer := parser.feed(sent))]
    assert bodies == [BODY] * 3


def test_connection_close_ends_keep_alive() -> None:
    """`Connection: close` ends keep-alive with a complete answer."""
    answer = make_parser().feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert answer == Answer(200, b"{}", keep_alive=False)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    """An answer without a length is complete only when the connection ends."""
    parser = make_parser()
    assert parser.feed(b"HTTP/1.0 200 OK\r\n\r\n" + BODY) is None
    assert parser.end() == Answer(200, BODY, keep_alive=False)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nConte", PLAIN[:-1], CHUNKED[:-1], PLAIN])
def test_the_end_of_a_connection_completes_nothing_else(sent: bytes) -> None:
    """An incomplete answer with a stated length is not an answer, and neither is an empty stream."""
    parser = make_parser()
    parser.feed(sent)
    assert parser.end() is None


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", PLAIN + PLAIN, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_invalid_and_surplus_answers_are_malformed(sent: bytes) -> None:
    """Bytes that are not HTTP, and more answers than requests, are errors."""
    with pytest.raises(MalformedAnswerError):
        make_parser().feed(sent)


def test_good_bodies_are_kept_on_request_only() -> None:
    """Bodies of errors are always kept, because they contain the code."""
    parser = make_parser(keep_bodies=False)
    assert parser.feed(PLAIN) == Answer(200, b"", keep_alive=True)
    error = parser.feed(b"HTTP/1.1 503 Nope\r\nContent-Length: 2\r\n\r\n{}")
    assert error == Answer(503, b"{}", keep_alive=True)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b"", "ok"),
        (429, b'{"error": {"code": "queue_full"}}', "queue_full"),
        (502, b"<html>", "http_502"),
        (500, b'{"error": "text"}', "http_500"),
        (500, b'{"error": {"code": 7}}', "http_500"),
        (404, b"[]", "http_404"),
    ],
)
def test_an_error_has_the_code_of_its_body_or_its_status(status: int, body: bytes, code: str) -> None:
    """Errors of any server are distinguishable: by the code in the body, or else by the status."""
    assert outcome_code(Answer(status, body, keep_alive=True)) == code


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"code": "no_worker", "message": "No worker\\nis alive."}}', "No worker is alive."),
        (b'{"error": "inputs: is missing", "error_type": "validation"}', "inputs: is missing"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"message": "upstream is down"}', "upstream is down"),
        (b"<html>\x1b[31m\r\n<b>Bad   Gateway</b>", "<html>[31m <b>Bad Gateway</b>"),
        (b"[1]", "[1]"),
        (b"", ""),
        (b"\xff", "\ufffd"),
        (b"x" * 1_000, "x" * 299 + "…"),
    ],
)
def test_an_error_has_the_message_of_its_body(body: bytes, message: str) -> None:
    """In any of the usual forms, as a short line that a terminal can show."""
    assert error_message(body) == message


@pytest.mark.parametrize(
    ("body", "inputs", "valid"),
    [
        ({"embedding": [1.0, 2.0]}, 1, True),
        ({"embeddings": [[1.0], [2.0]]}, 2, True),
        ({"embeddings": [[1.0], [2.0]]}, 3, False),
        ({"embeddings": [[1.0], [2.0, 3.0]]}, 2, False),
        ({"embeddings": [[], []]}, 2, False),
        ({"embedding": [float("nan")]}, 1, False),
        ({"embedding": None}, 1, False),
        ({"embedding": ["a"]}, 1, False),
        ({}, 1, False),
        ([], 1, False),
    ],
)
def test_a_checked_answer_has_a_vector_for_each_input(body: object, inputs: int, valid: bool) -> None:
    """The vectors have one length and finite numbers; anything else is a wrong answer."""
    raw = json.dumps(body).encode()
    assert has_vectors(raw, inputs) is valid
    assert outcome_code(Answer(200, raw, keep_alive=True), inputs) == ("ok" if valid else "wrong_answer")
