"""Parses HTTP answers incrementally, and determines the outcome of a request. No I/O."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import httptools

OK = "ok"
HTTP_OK = 200
FIRST_FINAL_STATUS = 200
WRONG_ANSWER = "wrong_answer"
MAX_MESSAGE_CHARS = 300
_LENGTH_HEADERS = {b"content-length", b"transfer-encoding"}


class MalformedAnswerError(Exception):
    """The bytes are not an HTTP answer, or there was no request for it."""


class Answer(NamedTuple):
    """A complete answer. `body` is empty for a 200 if bodies are not kept."""

    status: int
    body: bytes
    keep_alive: bool


class AnsweredError(NamedTuple):
    """An error that the server answered; `message` is one line of at most MAX_MESSAGE_CHARS characters."""

    status: int
    code: str
    message: str


class AnswerParser:
    """Parses the answers on one connection, which has one request in flight at a time.

    Args:
        keep_bodies: keep the bodies of answers with status 200; those of others are always kept: they contain the code.
    """

    def __init__(self, *, keep_bodies: bool) -> None:
        self._keep_bodies = keep_bodies
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self.on_message_begin()

    def feed(self, data: bytes) -> Answer | None:
        """Returns the answer that these bytes complete, or None.

        Raises:
            MalformedAnswerError: the bytes are not HTTP, or more than one answer.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise MalformedAnswerError(str(error)) from None
        answer, self._answer = self._answer, None
        return answer

    def end(self) -> Answer | None:
        """Returns the answer that the end of the connection completes, or None: only an answer without a length."""
        if not self._has_head or self._bounded:
            return None
        return Answer(self._parser.get_status_code(), b"".join(self._body), keep_alive=False)

    def on_message_begin(self) -> None:
        """Called by the parser: resets the state of the previous answer."""
        self._body: list[bytes] = []
        self._bounded = False
        self._has_head = False

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Called by the parser: records whether the answer states its length."""
        if name.lower() in _LENGTH_HEADERS:
            self._bounded = True

    def on_headers_complete(self) -> None:
        """Called by the parser when the head is complete."""
        self._has_head = self._parser.get_status_code() >= FIRST_FINAL_STATUS

    def on_body(self, chunk: bytes) -> None:
        """Called by the parser with a part of the body."""
        if self._keep_bodies or self._parser.get_status_code() != HTTP_OK:
            self._body.append(chunk)

    def on_message_complete(self) -> None:
        """Called by the parser when an answer is complete. Answers with a status of 1xx are interim and are skipped."""
        if not self._has_head:
            return
        if self._answer is not None:
            raise MalformedAnswerError("two answers to one request")
        parser = self._parser
        self._answer = Answer(parser.get_status_code(), b"".join(self._body), parser.should_keep_alive())
        self._has_head = False


def outcome_code(answer: Answer, inputs: int | None = None) -> str:
    """Returns "ok", the code in the body of an error, or `http_<status>`.

    Args:
        answer: the answer.
        inputs: if given, a good answer must contain this many vectors; otherwise the outcome is "wrong_answer".
    """
    if answer.status == HTTP_OK:
        return OK if inputs is None or has_vectors(answer.body, inputs) else WRONG_ANSWER
    try:
        code = json.loads(answer.body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return code if isinstance(code, str) and code else f"http_{answer.status}"


def error_message(body: bytes) -> str:
    """Returns the message in the body of an error, in one line: of Redbatch, OpenAI, TEI or FastAPI; else its text."""
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(body)
        error = answer.get("error", answer)
        named = error if isinstance(error, str) else error.get("message") or error.get("detail")
    except (ValueError, AttributeError):
        named = None
    line = " ".join((named if isinstance(named, str) else text).split())
    printable = "".join(each for each in line if each.isprintable())
    return printable if len(printable) <= MAX_MESSAGE_CHARS else f"{printable[: MAX_MESSAGE_CHARS - 1]}…"


def has_vectors(body: bytes, inputs: int) -> bool:
    """Whether a body contains one vector per input, all of the same length and of finite numbers."""
    try:
        answer = json.loads(body)
        vectors = [answer["embedding"]] if inputs == 1 else answer["embeddings"]
        lengths = {len(vector) for vector in vectors}
        finite = all(math.isfinite(number) for vector in vectors for number in vector)
    except (ValueError, KeyError, TypeError):
        return False
    return len(vectors) == inputs and len(lengths) == 1 and 0 not in lengths and finite
