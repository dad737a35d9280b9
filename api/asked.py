"""What a client asks for, whatever its words for it; and the bounds that hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import InvalidRequest, TooLarge
from shared.keys import INTERACTIVE, LANES
from shared.messages import PLAIN, Input, Options

if TYPE_CHECKING:
    from pydantic import ValidationError

    from api.settings import GatewaySettings

MAX_TIMEOUT_MS = 300_000
MAX_DIGITS = 10
TIMEOUT_HEADER, PRIORITY_HEADER = "x-timeout-ms", "x-priority"


class Asked(NamedTuple):
    """What a client asks for.

    `lane` is an index of keys.LANES. `single` and `base64` say in which form the vectors go back, `model` what the
    client calls it, if it names one.
    """

    inputs: tuple[Input, ...]
    timeout_ms: int
    lane: int = INTERACTIVE
    options: Options = PLAIN
    single: bool = False
    base64: bool = False
    model: str | None = None


def lane_of(priority: str | None) -> int:
    """Returns the lane of that name. Raises InvalidRequest: there is none."""
    if priority is None:
        return INTERACTIVE
    if priority not in LANES:
        raise InvalidRequest(f"X-Priority: send {' or '.join(LANES)}.")
    return LANES.index(priority)


def malformed(error: ValidationError, hint: str = "") -> InvalidRequest:
    """Returns the error of a client whose body is not what it should be: names what and where, never the text."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return InvalidRequest(f"The body is not valid JSON: {fault['msg'].removeprefix('Invalid JSON: ')}.")
    where = ".".join(str(part) for part in fault["loc"])
    return InvalidRequest(f"{where or 'body'}: {fault['msg']}." + (hint if not where else ""), param=where or None)


def check_sizes(inputs: Sequence[Input], settings: GatewaySettings) -> None:
    """Raises TooLarge: these are too many, or one is too long."""
    if len(inputs) > settings.max_inputs:
        raise too_many(len(inputs), settings.max_inputs)
    most = settings.max_input_chars
    for index, each in enumerate(inputs):
        length, what = (len(each) // 4, "token ids") if isinstance(each, bytes) else (len(each), "characters")
        if length > most:
            raise TooLarge(f"Input {index} has {length} {what}, over the limit of {most}: cut it.")


def too_many(inputs: int, most: int) -> TooLarge:
    """Returns the error for so many inputs."""
    return TooLarge(f"{inputs} inputs are over the limit of {most}: send fewer at once.")


def timeout_of(given: int | None, headers: Mapping[str, str], inputs: int, settings: GatewaySettings) -> int:
    """Returns the time (ms) for the answer: that of the body, of the header, or the default for so many inputs.

    Raises:
        InvalidRequest: the header is no such number.
    """
    return given or _header_timeout(headers) or _default_timeout(inputs, settings)


def _header_timeout(headers: Mapping[str, str]) -> int | None:
    value = headers.get(TIMEOUT_HEADER)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and 1 <= int(value) <= MAX_TIMEOUT_MS):
        raise InvalidRequest(f"X-Timeout-Ms: send a whole number from 1 to {MAX_TIMEOUT_MS}.")
    return int(value)


def _default_timeout(inputs: int, settings: GatewaySettings) -> int:
    return min(MAX_TIMEOUT_MS, settings.request_timeout_ms + settings.request_timeout_per_input_ms * inputs)
