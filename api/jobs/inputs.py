"""The inputs of a job: an invalid input fails alone, and its error is part of the job's result. Pure."""

from __future__ import annotations

from shared.errors import InvalidRequestError, RequestError, TooLargeError

JobInput = str | RequestError
"""A text, or the error of an invalid one."""


def check_text(text: str, max_chars: int) -> JobInput:
    """Returns the text, or its error if it is empty, longer than `max_chars` characters, or not valid Unicode."""
    if not text:
        return InvalidRequestError("The text is empty.")
    if len(text) > max_chars:
        return TooLargeError(f"The text has {len(text)} characters, over the limit of {max_chars}: shorten it.")
    try:
        text.encode()
    except UnicodeEncodeError:
        return InvalidRequestError("The text holds a lone surrogate, which is not a character.")
    return text
