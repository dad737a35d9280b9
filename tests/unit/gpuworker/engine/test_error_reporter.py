"""The log of exceptions that a model raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from structlog.testing import capture_logs

from gpuworker.backends.base import InputRefusedError
from gpuworker.engine.error_reporter import ErrorReporter, describe_briefly
from gpuworker.engine.work import BatchResult

SECRET = "a text of a client"


def _fail(text: str) -> None:
    try:
        dict[str, str]()[text]
    except KeyError as error:
        raise ValueError(f"cannot read {text}") from error


def caught() -> Exception:
    """Returns an exception as a model raises it, with another as its cause; both quote a text."""
    try:
        _fail(SECRET)
    except ValueError as error:
        return error
    raise AssertionError


def test_without_messages_the_frames_and_the_types_remain() -> None:
    """File, line and function of each frame lead to the place; no message, and no line of source, quotes an input."""
    text = describe_briefly(caught())
    assert text.startswith("ValueError at\n")
    assert "\ncaused by KeyError at\n" in text
    assert f"{__file__}:" in text
    assert " _fail" in text
    assert SECRET not in text
    assert "raise" not in text


@dataclass(eq=True)
class ArrayError(Exception):
    """An exception whose comparison raises ValueError: that of two arrays has no truth value."""

    values: np.ndarray[tuple[int], np.dtype[np.float64]]


def test_exceptions_are_not_compared() -> None:
    """Their comparison is the user's code. A cycle of causes ends."""
    error, cause = ArrayError(np.zeros(2)), ArrayError(np.zeros(2))
    error.__cause__, cause.__cause__ = cause, error
    assert describe_briefly(error).count("ArrayError at") == 2


@pytest.mark.parametrize(("messages", "quotes"), [("off", False), ("log", True), ("client", True)])
def test_messages_are_logged_only_if_that_is_set(messages: Literal["off", "log", "client"], quotes: bool) -> None:
    """The traceback and the type are logged in any case."""
    with capture_logs() as lines:
        failure = ErrorReporter(messages).record(caught(), BatchResult())
    [line] = lines
    assert (line["log_level"], line["error"]) == ("error", "ValueError")
    assert "test_error_reporter.py" in line["exception"]
    assert (SECRET in line["exception"]) is quotes
    assert (SECRET in failure.message) is (messages == "client")


def test_equal_exceptions_are_logged_once_and_counted_each_time() -> None:
    """Those of another place or type have separate lines."""
    reporter, result = ErrorReporter(), BatchResult()
    with capture_logs() as lines:
        for _ in range(100):
            reporter.record(caught(), result)
        reporter.record(OSError(), result)
    assert [line["error"] for line in lines] == ["ValueError", "OSError"]
    assert result.errors == ["ValueError"] * 100 + ["OSError"]


def test_a_refusal_is_neither_logged_nor_counted() -> None:
    """The client is at fault."""
    result = BatchResult()
    with capture_logs() as lines:
        failure = ErrorReporter().record(InputRefusedError("Send a number."), result)
    assert (lines, result.errors, failure.message) == ([], [], "Send a number.")


def test_a_long_message_is_cut() -> None:
    """In the log and for the client."""
    with capture_logs() as lines:
        failure = ErrorReporter("client").record(ValueError("x" * 10**6), BatchResult())
    assert len(lines[0]["exception"]) <= 8_000
    assert len(failure.message) <= 600
