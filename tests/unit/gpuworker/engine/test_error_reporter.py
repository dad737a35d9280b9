"""The log of exceptions that a model raises."""

from __future__ import annotations

from typing import Literal

import pytest
from structlog.testing import capture_logs

from gpuworker.backends.base import InputRefusedError
from gpuworker.engine.error_reporter import ErrorReporter
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
        reporter.flush()
    assert [line["error"] for line in lines] == ["ValueError", "OSError", "ValueError"]
    assert lines[2]["repeated"] == 99
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
