"""The inputs of a job: those that cannot be run fail alone, and say so with its result. Pure."""

from __future__ import annotations

from shared.errors import InvalidRequestError, RequestError, TooLargeError

JobInputs = str | RequestError
"""A text, or what is wrong with it."""


def checked(text: str, max_chars: int) -> JobInputs:
    """Returns a text, or what is wrong with it."""
    if not text:
        return InvalidRequestError("The text is empty.")
    if len(text) > max_chars:
        return TooLargeError(f"The text has {len(text)} characters, over the limit of {max_chars}: cut it.")
    try:
        text.encode()
    except UnicodeEncodeError:
        return InvalidRequestError("The text holds a lone surrogate, which is no character.")
    return text
