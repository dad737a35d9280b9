"""HTTP answers from bytes as they come, and what became of the requests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbatch.bench.answers import Answer, AnswerParser, MalformedAnswerError, has_vectors, outcome_code

BODY = b'{"embedding": [1.0, 2.0]}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
    10,
    BODY[:10],
    len(BODY) - 10,
    BODY[10:],
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def reader(*, keep_bodies: bool = True) -> AnswerParser:
    """A reader that keeps the bodies."""
    return AnswerParser(keep_bodies=keep_bodies)


@pytest.mark.parametrize("sent", [PLAIN, CHUNKED, CONTINUED])
@given(data=st.data())
def test_an_answer_may_come_in_any_pieces(sent: bytes, data: st.DataObject) -> None:
    """Wherever they are cut, the answer is whole with the last byte and not before."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=5)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    reading = reader()
    found = [reading.feed(piece) for piece in pieces]
    assert found == [None] * (len(pieces) - 1) + [Answer(200, BODY, keep_alive=True)]


def test_a_connection_carries_many_answers() -> None:
    """One after the other, of both framings."""
    reading = reader()
    bodies = [answer.body for sent in (PLAIN, CHUNKED, PLAIN) if (answer := reading.feed(sent))]
    assert bodies == [BODY] * 3


def test_a_server_that_closes_is_heard() -> None:
    """`Connection: close` ends keep-alive with a whole answer."""
    answer = reader().feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert answer == Answer(200, b"{}", keep_alive=False)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    """Only then is it whole."""
    reading = reader()
    assert reading.feed(b"HTTP/1.0 200 OK\r\n\r\n" + BODY) is None
    assert reading.end() == Answer(200, BODY, keep_alive=False)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nConte", PLAIN[:-1], CHUNKED[:-1], PLAIN])
def test_the_end_of_a_connection_completes_nothing_else(sent: bytes) -> None:
    """A part of an answer that said how long it is, is no answer; neither is nothing."""
    reading = reader()
    reading.feed(sent)
    assert reading.end() is None


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", PLAIN + PLAIN, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_answer_to_one_request_is_refused(sent: bytes) -> None:
    """No HTTP, or more answers than requests."""
    with pytest.raises(MalformedAnswerError):
        reader().feed(sent)


def test_good_bodies_are_kept_only_when_wanted() -> None:
    """Those of errors always are: they hold the code."""
    reading = reader(keep_bodies=False)
    assert reading.feed(PLAIN) == Answer(200, b"", keep_alive=True)
    error = reading.feed(b"HTTP/1.1 503 Nope\r\nContent-Length: 2\r\n\r\n{}")
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
    """Any server's errors can be told apart."""
    assert outcome_code(Answer(status, body, keep_alive=True)) == code


@pytest.mark.parametrize(
    ("body", "inputs", "right"),
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
def test_a_checked_answer_has_a_vector_for_each_input(body: object, inputs: int, right: bool) -> None:
    """All of one length and of finite numbers; anything else is a wrong answer."""
    raw = json.dumps(body).encode()
    assert has_vectors(raw, inputs) is right
    assert outcome_code(Answer(200, raw, keep_alive=True), inputs) == ("ok" if right else "wrong_answer")
