"""Reads a request's body within its bounds, and makes sense of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.connection import WHOLE
from shared.errors import BodyTimeout, InvalidRequest, RequestError, TooLarge, UnsupportedMediaType
from shared.keys import INTERACTIVE, LANES

if TYPE_CHECKING:
    from starlette.requests import Request

    from api.settings import GatewaySettings

MAX_TIMEOUT_MS = 300_000
MAX_DIGITS = 10
TIMEOUT_HEADER, PRIORITY_HEADER = "x-timeout-ms", "x-priority"


class EmbedBody(BaseModel):
    """Body of POST /embed: `text` for one vector, or `texts` for many."""

    model_config = ConfigDict(strict=True, extra="ignore")

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    # fail_fast: a body of a million numbers would make a million errors, and hold up everybody for seconds
    texts: list[str] | None = Field(default=None, description="Some texts.", fail_fast=True)
    timeout_ms: int | None = Field(
        default=None, ge=1, le=MAX_TIMEOUT_MS, description="Time for the answer; goes before the header X-Timeout-Ms."
    )
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None,
        description="interactive (the default), or bulk for what nobody waits for: it runs in the room that others "
        "leave. Goes before the header X-Priority.",
    )


class BodyUnread(Exception):
    """The body was not read to its end; `error` says why."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error.message)
        self.error = error


class EmbedRequest(NamedTuple):
    """What a client asks for. `single` ones get `embedding`, others `embeddings`; `lane` is an index of keys.LANES."""

    inputs: tuple[str, ...]
    single: bool
    timeout_ms: int
    lane: int


async def read_body(request: Request, limit: int, timeout_s: float) -> bytes:
    """Returns the body. The bounds hold while reading, whatever Content-Length says.

    Raises:
        BodyUnread: it is over the limit (TooLarge), did not arrive in time (BodyTimeout), or is announced as something
            other than JSON (UnsupportedMediaType).
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise BodyUnread(UnsupportedMediaType("Send JSON, with the header Content-Type: application/json."))
    message = f"The body is over the limit of {limit} bytes: send fewer texts at once."
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise BodyUnread(TooLarge(message))
    chunks: list[bytes] = []
    size = 0
    # Most bodies come with their head: for these a timer would cost more than all the rest here.
    bound = nullcontext() if request.scope["state"].get(WHOLE) else asyncio.timeout(timeout_s)
    try:
        async with bound:
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise BodyUnread(TooLarge(message))
                chunks.append(chunk)
    except TimeoutError:
        late = BodyTimeout(f"The body did not arrive within {timeout_s:g} s: send it at once.")
        raise BodyUnread(late) from None
    return b"".join(chunks)


def parse_embed(body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> EmbedRequest:
    """Returns what a body asks for, and where it is silent, the headers.

    Raises:
        InvalidRequest: it is malformed, or asks for nothing.
        TooLarge: it asks for too much.
    """
    try:
        parsed = EmbedBody.model_validate_json(body)
    except ValidationError as error:
        raise InvalidRequest(_first_fault(error)) from None
    inputs, single = _inputs(parsed)
    _check_sizes(inputs, settings)
    timeout_ms = parsed.timeout_ms or _header_timeout(headers) or _default_timeout(len(inputs), settings)
    return EmbedRequest(inputs, single, timeout_ms, _lane(parsed.priority or headers.get(PRIORITY_HEADER)))


def _lane(priority: str | None) -> int:
    if priority is None:
        return INTERACTIVE
    if priority not in LANES:
        raise InvalidRequest(f"X-Priority: send {' or '.join(LANES)}.")
    return LANES.index(priority)


def _first_fault(error: ValidationError) -> str:
    """Names what is wrong and where, never the client's text."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return f"The body is not valid JSON: {fault['msg'].removeprefix('Invalid JSON: ')}."
    where = ".".join(str(part) for part in fault["loc"])
    return f"{where or 'body'}: {fault['msg']}." + (' Send {"text": "..."} or {"texts": ["..."]}.' if not where else "")


def _inputs(parsed: EmbedBody) -> tuple[tuple[str, ...], bool]:
    if (parsed.text is None) == (parsed.texts is None):
        raise InvalidRequest('Send either {"text": "..."} or {"texts": ["...", ...]}.')
    single = parsed.text is not None
    inputs = (parsed.text,) if parsed.text is not None else tuple(parsed.texts or ())
    if not inputs:
        raise InvalidRequest("texts is empty: send at least one text.")
    empty = next((i for i, text in enumerate(inputs) if not text), None)
    if empty is not None:
        raise InvalidRequest("text is empty." if single else f"texts[{empty}] is empty.")
    return inputs, single


def _check_sizes(inputs: tuple[str, ...], settings: GatewaySettings) -> None:
    if len(inputs) > settings.max_inputs:
        raise TooLarge(f"{len(inputs)} inputs are over the limit of {settings.max_inputs}: send fewer at once.")
    for index, text in enumerate(inputs):
        if len(text) > settings.max_input_chars:
            raise TooLarge(
                f"Input {index} has {len(text)} characters, over the limit of {settings.max_input_chars}: cut it."
            )


def _header_timeout(headers: Mapping[str, str]) -> int | None:
    value = headers.get(TIMEOUT_HEADER)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and 1 <= int(value) <= MAX_TIMEOUT_MS):
        raise InvalidRequest(f"X-Timeout-Ms: send a whole number from 1 to {MAX_TIMEOUT_MS}.")
    return int(value)


def _default_timeout(inputs: int, settings: GatewaySettings) -> int:
    return min(MAX_TIMEOUT_MS, settings.request_timeout_ms + settings.request_timeout_per_input_ms * inputs)
