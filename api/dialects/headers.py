"""Headers: the time and lane of a request, unless its fields name them; the times of its answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from api.dialects.request import MAX_TIMEOUT_MS, PRIORITY_HEADER, TIMEOUT_HEADER
from shared.errors import InvalidRequestError
from shared.keys import BULK, INTERACTIVE, LANES

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult
    from api.settings_groups import RequestLimits

JSON = "application/json"
Priority = int | Literal["interactive", "bulk"]
PRIORITY: Any = Field(
    default=None, description="0 or less, or a higher number or bulk for requests that no user waits for."
)
"""The field of a body with a priority: see `lane_of`."""

MAX_DIGITS = 10
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?')
"""A quoted string, also an unclosed one: without backtracking, time grows linearly with a header's length."""


def media_type_of(headers: Mapping[str, str]) -> str:
    """Returns the media type of a body, in lower case and without parameters; JSON's if the headers name none."""
    return headers.get("content-type", JSON).partition(";")[0].strip().lower()


def lane_of(priority: int | str | None, headers: Mapping[str, str], default: int = INTERACTIVE) -> int:
    """Returns the lane of a priority: that of the body, else of the header, else the default.

    Lower numbers are sooner, and 0 is what clients send for users who wait; above it is bulk.

    Raises:
        InvalidRequestError: the header names no lane.
    """
    if isinstance(priority, int):
        return BULK if priority > 0 else INTERACTIVE
    priority = priority or headers.get(PRIORITY_HEADER)
    if priority is None:
        return default
    if priority not in LANES:
        raise InvalidRequestError(f"X-Priority: send {' or '.join(LANES)}.")
    return LANES.index(priority)


def resolve_timeout_ms(
    timeout_ms: int | None, headers: Mapping[str, str], num_inputs: int, limits: RequestLimits
) -> int:
    """Returns the time for the answer: that of the body, else of the header, else the default for this many inputs.

    Raises:
        InvalidRequestError: the header is not a whole number from 1 to MAX_TIMEOUT_MS.
    """
    return timeout_ms or header_timeout_ms(headers) or _default_timeout_ms(num_inputs, limits)


def header_timeout_ms(headers: Mapping[str, str]) -> int | None:
    """Returns the time that X-Timeout-Ms sets, or None without it. Raises InvalidRequestError: it is malformed."""
    value = headers.get(TIMEOUT_HEADER)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and 1 <= int(value) <= MAX_TIMEOUT_MS):
        raise InvalidRequestError(f"X-Timeout-Ms: send a whole number from 1 to {MAX_TIMEOUT_MS}.")
    return int(value)


def _default_timeout_ms(num_inputs: int, limits: RequestLimits) -> int:
    return min(MAX_TIMEOUT_MS, limits.timeout_ms + limits.timeout_per_input_ms * num_inputs)


def prefers_async(values: Iterable[str]) -> bool:
    """Whether the values of a request's Prefer headers (RFC 7240) hold `respond-async`."""
    preferences = ",".join(_QUOTED.sub("", value) for value in values).split(",")
    return any(re.split("[;=]", each)[0].strip().lower() == "respond-async" for each in preferences)


def timing_headers(result: InferenceResult) -> dict[str, str]:
    """Returns the times of a request, in ms, and the size of the batch that it ran in."""
    return {
        "x-queue-time": f"{result.queue_ms:.1f}",
        "x-inference-time": f"{result.inference_ms:.1f}",
        "x-batch-size": str(result.batch_size),
    }
