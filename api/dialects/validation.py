"""The checks of a request that all dialects share. Pure.

A dialect takes the inputs from its fields, calls `check_inputs`, and reads time and lane with `resolve_timeout_ms` and
`parse_lane`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from api.dialects.request import MAX_TIMEOUT_MS, NO_INPUT_ERRORS, TIMEOUT_HEADER
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.keys import INTERACTIVE, LANES
from shared.messages import Input

if TYPE_CHECKING:
    from pydantic import ValidationError

    from api.settings import RequestLimits

MAX_DIGITS = 10


def parse_lane(priority: str | None, default: int = INTERACTIVE) -> int:
    """Returns the lane that a priority names, or the default for None. Raises InvalidRequestError: no such lane."""
    if priority is None:
        return default
    if priority not in LANES:
        raise InvalidRequestError(f"X-Priority: send {' or '.join(LANES)}.")
    return LANES.index(priority)


def invalid_body_error(error: ValidationError, hint: str = "") -> InvalidRequestError:
    """Returns the client's error for a body that is invalid: it says which field and why, never repeats the text."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return InvalidRequestError(f"The body is not valid JSON: {fault['msg'].removeprefix('Invalid JSON: ')}.")
    field = ".".join(str(part) for part in fault["loc"])
    return InvalidRequestError(f"{field or 'body'}: {fault['msg']}." + (hint if not field else ""), param=field or None)


def check_inputs(
    inputs: Sequence[Input], limits: RequestLimits, name: str, *, partial: bool = False
) -> Mapping[int, RequestError]:
    """Returns the errors of invalid inputs by index, if `partial`: the answer then goes on without them.

    Args:
        inputs: all inputs of the request.
        limits: the bounds.
        name: of the field that holds the inputs, with {} for the index.
        partial: see InferenceRequest; otherwise the first error is raised.

    Raises:
        InvalidRequestError: an input is empty.
        TooLargeError: there are too many inputs, or one is too long.
    """
    if len(inputs) > limits.max_inputs:
        raise too_many_inputs_error(len(inputs), limits.max_inputs)
    max_chars = limits.max_input_chars
    if all([0 < len(each) <= max_chars for each in inputs]):  # noqa: C419 - a generator takes three times as long
        return NO_INPUT_ERRORS
    errors = {i: error for i, each in enumerate(inputs) if (error := _input_error(i, each, max_chars, name))}
    if errors and not partial:
        raise next(iter(errors.values()))
    return errors


def _input_error(index: int, value: Input, max_chars: int, name: str) -> RequestError | None:
    length, unit = (len(value) // 4, "token ids") if isinstance(value, bytes) else (len(value), "characters")
    if length > max_chars:
        return TooLargeError(f"Input {index} has {length} {unit}, over the limit of {max_chars}: shorten it.")
    return None if length else InvalidRequestError(f"{name.format(index)} is empty.", param=name.partition("[")[0])


def texts_of(text: str | None, texts: list[str] | None) -> list[str]:
    """Returns the texts of a body that holds `text` or `texts`.

    Raises:
        InvalidRequestError: both fields are set, neither is, or `texts` is empty.
    """
    if (text is None) == (texts is None):
        raise InvalidRequestError('Send either {"text": "..."} or {"texts": ["...", ...]}.')
    if text is not None:
        return [text]
    if not texts:
        raise InvalidRequestError("texts is empty: send at least one text.")
    return texts


def too_many_inputs_error(num_inputs: int, max_inputs: int) -> TooLargeError:
    """Returns the error for a request with more inputs than allowed."""
    return TooLargeError(f"{num_inputs} inputs are over the limit of {max_inputs}: send fewer at once.")


def resolve_timeout_ms(
    timeout_ms: int | None, headers: Mapping[str, str], num_inputs: int, limits: RequestLimits
) -> int:
    """Returns the time for the answer: that of the body, else of the header, else the default for this many inputs.

    Raises:
        InvalidRequestError: the header is not a whole number from 1 to MAX_TIMEOUT_MS.
    """
    return timeout_ms or _header_timeout_ms(headers) or _default_timeout_ms(num_inputs, limits)


def _header_timeout_ms(headers: Mapping[str, str]) -> int | None:
    value = headers.get(TIMEOUT_HEADER)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and 1 <= int(value) <= MAX_TIMEOUT_MS):
        raise InvalidRequestError(f"X-Timeout-Ms: send a whole number from 1 to {MAX_TIMEOUT_MS}.")
    return int(value)


def _default_timeout_ms(num_inputs: int, limits: RequestLimits) -> int:
    return min(MAX_TIMEOUT_MS, limits.timeout_ms + limits.timeout_per_input_ms * num_inputs)
