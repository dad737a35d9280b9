"""The inputs of a job: an invalid input fails alone, and its error is part of the job's result. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from api.dialects.predict import encode_input
from shared.codec import input_size
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.messages import Input

if TYPE_CHECKING:
    from api.dispatch.size_limits import InputLimit

EMPTY_TEXT = InvalidRequestError("The text is empty.")
LONE_SURROGATE = InvalidRequestError("The text holds a lone surrogate, which is not a character.")
"""Shared, as is EMPTY_QUERY, because a body may hold millions of such texts. They are never raised."""

EMPTY_QUERY = InvalidRequestError("The query is empty.")


class Pair(NamedTuple):
    """A query and a text that a reranker scores together."""

    query: str
    text: str


JobInput = Input | Pair | RequestError
"""A text, token ids, a pair, or the JSON or binary content of a function's input; or the error of an invalid one."""


def check_text(text: str, max_chars: int) -> JobInput:
    """Returns the text, or its error if it is empty, longer than `max_chars` characters, or not valid Unicode."""
    if not text:
        return EMPTY_TEXT
    if len(text) > max_chars:
        return TooLargeError(
            f"The text has {len(text)} characters, over the limit of {max_chars}: shorten it, or raise the setting "
            "max_input_chars of the gateway."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        return LONE_SURROGATE
    return text


def check_pair(text: str, query: str, max_chars: int) -> JobInput:
    """Returns a pair, or the error of its query or text. The text may be empty, as on /rerank."""
    if not query:
        return EMPTY_QUERY
    errors = (check_text(each, max_chars) for each in (query, text) if each)
    return next((each for each in errors if isinstance(each, RequestError)), Pair(query, text))


def check_value(value: Any, limit: InputLimit) -> JobInput:  # noqa: ANN401 - any JSON value
    """Returns an input of a function, or its error if it is over the limit, or cannot be encoded."""
    try:
        encoded = encode_input(value, "input")
    except InvalidRequestError as error:
        return error
    if (size := input_size(encoded)) > limit.max_bytes:
        return TooLargeError(
            f"The input has {size} bytes, over the limit of {limit.max_bytes}: send less, or raise the setting "
            f"{limit.setting}."
        )
    return encoded


def check_input(value: Input, error: RequestError | None) -> JobInput:
    """Returns an input that a dialect has checked, or its error; a text that is not valid Unicode has one too."""
    if error is not None or isinstance(value, bytes):
        return error or value
    return check_text(value, len(value))


def error_and_query(value: JobInput) -> tuple[tuple[str, str] | None, str | None]:
    """Returns code and message of the error of an invalid input, or None; and the query of a pair, or None."""
    error = (value.code, value.message) if isinstance(value, RequestError) else None
    return error, value.query if isinstance(value, Pair) else None
