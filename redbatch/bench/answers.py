"""Reads answers from bytes as they come, and says what became of a request. No I/O."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import httptools

OK = "ok"
HTTP_OK = 200
FIRST_FINAL_STATUS = 200
WRONG_ANSWER = "wrong_answer"
_LENGTH_HEADERS = {b"content-length", b"transfer-encoding"}


class MalformedAnswerError(Exception):
    """What came is no HTTP answer, or one that nobody asked for."""


class Answer(NamedTuple):
    """A whole answer. `body` is empty when it is a 200 whose body nobody wants to see."""

    status: int
    body: bytes
    keep_alive: bool


class AnswerParser:
    """Makes answers of the bytes of one connection, which has one request in flight at a time.

    Args:
        keep_bodies: keep the bodies of good answers too; those of others are always kept, for they hold the code.
    """

    def __init__(self, *, keep_bodies: bool) -> None:
        self._keep_bodies = keep_bodies
        self._parser = httptools.HttpResponseParser(self)
        self._done: Answer | None = None
        self.on_message_begin()

    def feed(self, data: bytes) -> Answer | None:
        """Takes bytes in; returns the answer that they complete, if any.

        Raises:
            MalformedAnswerError: they are no HTTP, or more than one answer.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise MalformedAnswerError(str(error)) from None
        done, self._done = self._done, None
        return done

    def end(self) -> Answer | None:
        """Takes the end of the connection; returns the answer that it completes: one that announced no length."""
        if not self._has_head or self._bounded:
            return None
        return Answer(self._parser.get_status_code(), b"".join(self._body), keep_alive=False)

    def on_message_begin(self) -> None:
        """The parser's: forgets the answer before."""
        self._body: list[bytes] = []
        self._bounded = False
        self._has_head = False

    def on_header(self, name: bytes, _value: bytes) -> None:
        """The parser's: notes whether the answer says where it ends."""
        if name.lower() in _LENGTH_HEADERS:
            self._bounded = True

    def on_headers_complete(self) -> None:
        """The parser's: the head is there."""
        self._has_head = self._parser.get_status_code() >= FIRST_FINAL_STATUS

    def on_body(self, chunk: bytes) -> None:
        """The parser's: a part of the body."""
        if self._keep_bodies or self._parser.get_status_code() != HTTP_OK:
            self._body.append(chunk)

    def on_message_complete(self) -> None:
        """The parser's: an answer is whole. A 1xx is none."""
        if not self._has_head:
            return
        if self._done is not None:
            raise MalformedAnswerError("two answers to one request")
        parser = self._parser
        self._done = Answer(parser.get_status_code(), b"".join(self._body), parser.should_keep_alive())
        self._has_head = False


def outcome_code(answer: Answer, inputs: int | None = None) -> str:
    """Returns "ok", the code in the body of an error, or `http_<status>`.

    Args:
        answer: what came.
        inputs: look into a good answer, for so many vectors; "wrong_answer" when they are not there.
    """
    if answer.status == HTTP_OK:
        return OK if inputs is None or has_vectors(answer.body, inputs) else WRONG_ANSWER
    try:
        code = json.loads(answer.body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return code if isinstance(code, str) and code else f"http_{answer.status}"


def has_vectors(body: bytes, inputs: int) -> bool:
    """Whether a body holds one vector for each input, all of one length, of finite numbers."""
    try:
        answer = json.loads(body)
        vectors = [answer["embedding"]] if inputs == 1 else answer["embeddings"]
        lengths = {len(vector) for vector in vectors}
        finite = all(math.isfinite(number) for vector in vectors for number in vector)
    except (ValueError, KeyError, TypeError):
        return False
    return len(vectors) == inputs and len(lengths) == 1 and 0 not in lengths and finite
