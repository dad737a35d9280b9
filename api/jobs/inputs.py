"""The inputs of a job: those that cannot be run fail alone, and say so with its result. Pure."""

from __future__ import annotations

from shared.errors import InvalidRequest, RequestError, TooLarge

Given = str | RequestError
"""A text, or what is wrong with it."""


def checked(text: str, most_chars: int) -> Given:
    """Returns a text, or what is wrong with it."""
    if not text:
        return InvalidRequest("The text is empty.")
    if len(text) > most_chars:
        return TooLarge(f"The text has {len(text)} characters, over the limit of {most_chars}: cut it.")
    try:
        text.encode()
    except UnicodeEncodeError:
        return InvalidRequest("The text holds a lone surrogate, which is no character.")
    return text
