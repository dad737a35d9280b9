"""Tracebacks without messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.process.tracebacks import describe_briefly

SECRET = "a text of a client"


def _fail(text: str) -> None:
    try:
        dict[str, str]()[text]
    except KeyError as error:
        raise ValueError(f"cannot read {text}") from error


def test_the_frames_and_the_types_remain() -> None:
    """File, line and function of each frame lead to the place; no message, and no line of source, quotes an input."""
    try:
        _fail(SECRET)
    except ValueError as error:
        text = describe_briefly(error)
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
