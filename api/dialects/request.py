"""What a client asks for, whatever its words for it; and the bounds that hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from api.tenants import NOBODY, Tenant
from shared.errors import InvalidRequest, RequestError, TooLarge
from shared.keys import INTERACTIVE, LANES
from shared.messages import EMBED, PLAIN, Input, Options

if TYPE_CHECKING:
    from pydantic import ValidationError

    from api.settings import GatewaySettings

MAX_TIMEOUT_MS = 300_000
MAX_DIGITS = 10
TIMEOUT_HEADER, PRIORITY_HEADER, MODEL_HEADER = "x-timeout-ms", "x-priority", "x-model"
MAX_MODEL = 256
"""Characters of a model's name."""

NONE_REFUSED: Mapping[int, RequestError] = MappingProxyType({})


class Asked(NamedTuple):
    """What a client asks for.

    `op` is one of messages.OPS, and `lane` an index of keys.LANES. A `partial` answer may do without inputs that fail;
    `refused` are those that need not be tried, by index. `single` and `base64` say in which form the vectors go back,
    `model` what the client calls it, if it names one. `tenant` is whoever asks.
    """

    inputs: tuple[Input, ...]
    timeout_ms: int
    lane: int = INTERACTIVE
    options: Options = PLAIN
    op: str = EMBED
    partial: bool = False
    refused: Mapping[int, RequestError] = NONE_REFUSED
    single: bool = False
    base64: bool = False
    model: str | None = None
    tenant: Tenant = NOBODY


def lane_of(priority: str | None, default: int = INTERACTIVE) -> int:
    """Returns the lane of that name. Raises InvalidRequest: there is none."""
    if priority is None:
        return default
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


def check_inputs(
    inputs: Sequence[Input], settings: GatewaySettings, name: str, *, partial: bool = False
) -> Mapping[int, RequestError]:
    """Returns what is wrong with inputs, by index: in a `partial` answer the others go on without them.

    Args:
        inputs: what is to be embedded.
        settings: have the bounds.
        name: of the field that they came in, with {} where the index goes.
        partial: see Asked.

    Raises:
        InvalidRequest: one is empty.
        TooLarge: these are too many, or one is too long.
    """
    if len(inputs) > settings.max_inputs:
        raise too_many(len(inputs), settings.max_inputs)
    most = settings.max_input_chars
    if all([0 < len(each) <= most for each in inputs]):  # noqa: C419 - a generator takes three times as long
        return NONE_REFUSED
    faults = {index: fault for index, each in enumerate(inputs) if (fault := _fault(index, each, most, name))}
    if faults and not partial:
        raise next(iter(faults.values()))
    return faults


def _fault(index: int, given: Input, most: int, name: str) -> RequestError | None:
    length, what = (len(given) // 4, "token ids") if isinstance(given, bytes) else (len(given), "characters")
    if length > most:
        return TooLarge(f"Input {index} has {length} {what}, over the limit of {most}: cut it.")
    return None if length else InvalidRequest(f"{name.format(index)} is empty.", param=name.partition("[")[0])


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
