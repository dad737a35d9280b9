"""Sends the bytes of a case over a connection, and reads until the gateway has answered all of it or closes."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from tests.fuzz.answers import Answer, AnswerReader, MalformedAnswerError
from tests.fuzz.framing import End, Framing, read_stream
from tests.fuzz.grammar import Case
from tests.fuzz.judge import SENTINEL_ID, WrongAnswerError, check_answers, check_complete

ANSWER_S = 30.0
"""Maximum time for an answer: far more than any takes, because a busy machine is no fault."""

QUIET_S = 0.05
"""How long to wait for what must not come."""

SENTINEL = b"GET /sentinel HTTP/1.1\r\nHost: x\r\nX-Request-Id: %b\r\n\r\n" % SENTINEL_ID
"""Follows a case that ends after a request: its answer shows that there was exactly one for each request before.

It also follows bytes that are no clear request. Then it must never be answered.
"""


class Exchange:
    """One connection. `start` sends, `finish` reads and judges; in between, others may be started.

    Args:
        case: what to send.
        replaced: bytes that stand for something in the case, and what to send for them: of the same length.
    """

    def __init__(self, case: Case, replaced: Mapping[bytes, bytes]) -> None:
        stream = case.stream
        for mark, value in replaced.items():
            stream = stream.replace(mark, value)
        self._names_timeout = b"timeout" in stream.lower()
        if read_stream(stream).end in (End.CLEAN, End.BROKEN):
            stream += SENTINEL
        self._pieces = case.pieces(stream)
        self._framing: Framing = read_stream(stream)
        self._reader = AnswerReader(self._framing.methods)
        self._is_cut_off = False
        self._socket = socket.socket()

    def start(self, port: int) -> None:
        """Connects and sends. Raises OSError: the gateway does not accept connections."""
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):  # the gateway has refused the begin and closed
            for piece in self._pieces:
                self._socket.sendall(piece)

    def finish(self) -> Sequence[Answer]:
        """Reads until the connection is closed, and returns the answers.

        Raises:
            AssertionError: they are not right; see `check_answers`.
        """
        has_closed = self._read_while(self._expects_more, ANSWER_S)
        if not has_closed and self._framing.end is End.BROKEN:
            has_closed = self._read_while(lambda: True, QUIET_S)
        answers = self._reader.answers
        check_answers(self._framing, answers, names_timeout=self._names_timeout)
        if not self._is_cut_off:
            check_complete(self._framing, answers)
        if not has_closed:
            self._leave()
        if self._reader.rest and not self._is_cut_off:
            raise MalformedAnswerError(f"the connection ends within an answer: {self._reader.rest[:200]!r}")
        check_answers(self._framing, answers, names_timeout=self._names_timeout)
        return answers

    def close(self) -> None:
        """Closes the connection, if it is still open."""
        self._socket.close()

    def _expects_more(self) -> bool:
        answers = self._reader.answers
        if answers and answers[-1].closes:
            return False
        return len(answers) < len(self._framing.requests) or self._framing.end is End.CLOSED

    def _leave(self) -> None:
        """Closes the client's side, and reads what still comes; an answer may be cut off by that."""
        self._is_cut_off = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if not self._read_while(lambda: True, ANSWER_S):
            raise WrongAnswerError("the client has left, and the connection stays open")

    def _read_while(self, goes_on: Callable[[], bool], timeout_s: float) -> bool:
        """Reads while `goes_on` returns True; returns whether the gateway has closed the connection.

        Raises:
            WrongAnswerError: nothing has come for ANSWER_S although an answer is due.
        """
        until = time.monotonic() + timeout_s
        while goes_on():
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                if timeout_s < ANSWER_S:
                    return False
                answers = len(self._reader.answers)
                raise WrongAnswerError(
                    f"{answers} answers to {len(self._framing.requests)} requests within {ANSWER_S:g} s"
                ) from None
            except ConnectionError:
                self._is_cut_off = True  # what the gateway had not read when it closed resets the connection
                return True
            if not data:
                return True
            self._reader.feed(data)
        return False
