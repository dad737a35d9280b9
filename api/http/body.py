"""Reads the body of a request within its limits: bytes, time, and the memory of all bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from api.dialects.headers import JSON, media_type_of
from api.http.client_connection import CLIENT
from api.http.protocol import COMPLETE_BODY
from api.memory_budget import SMALL_BYTES, HeldMemory, MemoryBudget
from api.tenants import ShareHolder
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    RedbatchError,
    TooManyBodiesError,
    UnsupportedMediaTypeError,
)
from shared.record import Record

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message


BUDGET_RETRY_S = 1.0
IDENTITY = "identity"


class BodyUnreadError(Exception):
    """The body was not read to its end; `error` is the answer to the client."""

    def __init__(self, error: RedbatchError) -> None:
        super().__init__(error.message)
        self.error = error


class BodyLimits(Record, frozen=True):
    """The limits of one body: its size, the time for it to arrive, and the budget of which its holder has a share.

    `setting` names the setting of its size. `other_types` are the media types that it may have beside JSON.
    """

    max_bytes: int
    timeout_s: float
    budget: MemoryBudget
    holder: ShareHolder
    setting: str
    other_types: frozenset[str] = frozenset()


async def read_body(
    request: Request, headers: Mapping[str, str], limits: BodyLimits
) -> tuple[list[bytes], HeldMemory | None]:
    """Returns the pieces of a body as they arrived, since to join large ones takes a while, and the memory they hold.

    The caller must release that. A small body that came in one piece, as usual, holds none: it is parsed at once. The
    limits hold while reading, whatever Content-Length says.

    Raises:
        BodyUnreadError: the body is too large (BodyTooLargeError), did not arrive in time (BodyTimeoutError), has a
            type other than JSON and `other_types` or is compressed (UnsupportedMediaTypeError), or exceeds the budget
            (TooManyBodiesError).
    """
    check_encoding(headers)
    _check_media_type(headers, limits.other_types)
    content_length = headers.get("content-length", "0")
    if content_length.isdigit() and int(content_length) > limits.max_bytes:
        raise _too_large(limits)
    body = request.scope["state"].pop(COMPLETE_BODY, None)
    if body is not None:  # the usual case: a timer would cost more than all the rest here
        request.scope["state"][CLIENT].check()
        piece = bytes(body)
        body.clear()  # `receive` has nothing of it any more
        _check_size(len(piece), limits)
        if len(piece) <= SMALL_BYTES:
            return [piece], None
        memory = HeldMemory(limits.budget, limits.holder)
        _grow(memory, len(piece))
        return [piece], memory
    memory = HeldMemory(limits.budget, limits.holder)
    try:
        async with asyncio.timeout(limits.timeout_s):
            return await _read(request, limits, memory), memory
    except BaseException as error:
        memory.release()
        if not isinstance(error, TimeoutError):
            raise
        timeout = BodyTimeoutError(f"The body did not arrive within {limits.timeout_s:g} s: send it without pauses.")
        raise BodyUnreadError(timeout) from None


def check_encoding(headers: Mapping[str, str]) -> None:
    """Raises BodyUnreadError: the body is compressed, which no route takes."""
    if headers.get("content-encoding", IDENTITY).lower() != IDENTITY:
        raise BodyUnreadError(UnsupportedMediaTypeError("Content-Encoding: send the body without compression."))


def _check_media_type(headers: Mapping[str, str], other_types: frozenset[str]) -> None:
    media_type = headers.get("content-type")
    if media_type == JSON:  # the usual case
        return
    media_type = media_type_of(headers)
    if media_type != JSON and not media_type.endswith("+json") and media_type not in other_types:
        others = "".join(f", or {each}" for each in sorted(other_types))
        raise BodyUnreadError(
            UnsupportedMediaTypeError(f"Send JSON, with the header Content-Type: application/json{others}.")
        )


async def _read(request: Request, limits: BodyLimits, memory: HeldMemory) -> list[bytes]:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await _receive(request)
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        _check_size(size, limits)
        _grow(memory, len(piece))
        pieces.append(piece)
    return pieces


def _grow(memory: HeldMemory, by: int) -> None:
    if not memory.grow(by):
        raise BodyUnreadError(too_many_bodies_error())


async def _receive(request: Request) -> Message:
    """Returns the next piece of a body. Raises ClientDisconnect."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


def _check_size(size: int, limits: BodyLimits) -> None:
    if size > limits.max_bytes:
        raise _too_large(limits)


def too_many_bodies_error() -> TooManyBodiesError:
    """Returns the error for a body for which this gateway has no memory left, or none for its holder."""
    return TooManyBodiesError(
        "Too many bodies are being received: try again soon, or raise the setting max_bodies_bytes of the gateway.",
        retry_after_s=BUDGET_RETRY_S,
    )


def _too_large(limits: BodyLimits) -> BodyUnreadError:
    error = BodyTooLargeError(
        f"The body is over the limit of {limits.max_bytes} bytes: send fewer inputs at once, or raise the setting "
        f"{limits.setting} of the gateway."
    )
    return BodyUnreadError(error)
