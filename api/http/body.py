"""Reads the body of a request within its limits: bytes, time, and the memory of all bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import ClientDisconnect

from api.dialects.headers import media_type_of
from api.http.protocol import BODY_COMPLETE
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    RedbatchError,
    TooManyBodiesError,
    UnsupportedMediaTypeError,
)

if TYPE_CHECKING:
    from starlette.requests import Request


BUDGET_RETRY_S = 1.0
SMALL_BYTES = 64 * 1024
SMALL_PARTS = 4
"""Small bodies that arrive may have one part of this many of `max_bodies_bytes`, in addition to the large ones."""

LARGE_BODY_BYTES = 64 * 1024
"""To join and parse larger bodies may take tens of milliseconds.

They are parsed one at a time; after each, other work gets as much time as the parsing took.
"""


class BodyUnreadError(Exception):
    """The body was not read to its end; `error` is the answer to the client."""

    def __init__(self, error: RedbatchError) -> None:
        super().__init__(error.message)
        self.error = error


class BodyBudget:
    """Bounds the bytes of all bodies that a gateway holds at a time, until they are parsed.

    Small ones count only while they arrive, and have a part for themselves: so large ones never refuse them, and the
    usual ones, which arrive in one piece, are never refused.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_small_bytes = max(max_bytes // SMALL_PARTS, SMALL_BYTES)
        self._used = 0
        self._used_by_small = 0

    def grow(self, size: int, by: int) -> bool:
        """Reserves memory for a body of `size` bytes that grows by `by` bytes; returns False if there is none.

        A body that is the only one always gets memory: otherwise a body larger than the budget would never be read.
        """
        others = self._used - (size if size > SMALL_BYTES else 0)
        if others and others + size + by > self._max_bytes:
            return False
        self._used = others + size + by
        return True

    def release(self, size: int) -> None:
        """Releases the memory of a body of `size` bytes."""
        if size > SMALL_BYTES:
            self._used -= size

    def grow_small(self, by: int) -> bool:
        """Reserves memory for a further piece of a small body that arrives; returns False if there is none."""
        if self._used_by_small + by > self._max_small_bytes:
            return False
        self._used_by_small += by
        return True

    def release_small(self, size: int) -> None:
        """Releases the memory of a small body that has arrived, or has become a large one."""
        self._used_by_small -= size


class Reservation:
    """The memory that one body holds of a budget, while it grows and shrinks."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._size = 0

    def resize(self, size: int) -> None:
        """Reserves memory for `size` bytes in all. Raises TooManyBodiesError: there is none; then none is reserved."""
        self._budget.release(self._size)
        self._size = 0
        if size > SMALL_BYTES and not self._budget.grow(0, size):
            raise _too_many()
        self._size = size


class BodyLimits(NamedTuple):
    """The limits of one body: its size, the time for it to arrive, and the budget that it shares.

    `setting` names the setting of its size. `other_types` are the media types that it may have beside JSON.
    """

    max_bytes: int
    timeout_s: float
    budget: BodyBudget
    setting: str
    other_types: frozenset[str] = frozenset()


async def read_body(request: Request, headers: Mapping[str, str], limits: BodyLimits) -> list[bytes]:
    """Returns the pieces of a body as they arrived: to join large ones takes a while.

    The caller must release the body's bytes in the budget. The limits hold while reading, whatever Content-Length says.

    Raises:
        BodyUnreadError: the body is too large (BodyTooLargeError), did not arrive in time (BodyTimeoutError), has a
            type other than JSON and `other_types` (UnsupportedMediaTypeError), or exceeds the budget
            (TooManyBodiesError).
    """
    _check_media_type(headers, limits.other_types)
    timeout_s, budget = limits.timeout_s, limits.budget
    content_length = headers.get("content-length", "0")
    if content_length.isdigit() and int(content_length) > limits.max_bytes:
        raise _too_large(limits)
    pieces: list[bytes] = []
    try:
        if request.scope["state"].get(BODY_COMPLETE):  # the usual case: a timer would cost more than all the rest here
            await _read_complete(request, limits, pieces)
        else:
            async with asyncio.timeout(timeout_s):
                await _read(request, limits, pieces)
    except BaseException as error:
        budget.release(sum(map(len, pieces)))
        if not isinstance(error, TimeoutError):
            raise
        timeout = BodyTimeoutError(f"The body did not arrive within {timeout_s:g} s: send it without pauses.")
        raise BodyUnreadError(timeout) from None
    return pieces


def _check_media_type(headers: Mapping[str, str], other_types: frozenset[str]) -> None:
    media_type = media_type_of(headers)
    if media_type != "application/json" and not media_type.endswith("+json") and media_type not in other_types:
        others = "".join(f", or {each}" for each in sorted(other_types))
        raise BodyUnreadError(
            UnsupportedMediaTypeError(f"Send JSON, with the header Content-Type: application/json{others}.")
        )


async def _read_complete(request: Request, limits: BodyLimits, pieces: list[bytes]) -> None:
    piece = (await _receive(request))[0]
    _check_size(len(piece), limits)
    if len(piece) > SMALL_BYTES and not limits.budget.grow(0, len(piece)):
        raise BodyUnreadError(_too_many())
    pieces.append(piece)


async def _read(request: Request, limits: BodyLimits, pieces: list[bytes]) -> None:
    budget, size, small_size, more = limits.budget, 0, 0, True
    try:
        while more:
            piece, more = await _receive(request)
            _check_size(size + len(piece), limits)
            if size + len(piece) > SMALL_BYTES:
                if not budget.grow(size, len(piece)):
                    raise BodyUnreadError(_too_many())
                budget.release_small(small_size)
                small_size = 0
            elif budget.grow_small(len(piece)):
                small_size += len(piece)
            else:
                raise BodyUnreadError(_too_many())
            size += len(piece)
            pieces.append(piece)
    finally:
        budget.release_small(small_size)


async def _receive(request: Request) -> tuple[bytes, bool]:
    """Returns the next piece of a body, and whether more follow. Raises ClientDisconnect."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def _check_size(size: int, limits: BodyLimits) -> None:
    if size > limits.max_bytes:
        raise _too_large(limits)


def _too_many() -> TooManyBodiesError:
    return TooManyBodiesError(
        "Too many large bodies are being received: try again soon, or raise the setting max_bodies_bytes of the "
        "gateway.",
        retry_after_s=BUDGET_RETRY_S,
    )


def _too_large(limits: BodyLimits) -> BodyUnreadError:
    error = BodyTooLargeError(
        f"The body is over the limit of {limits.max_bytes} bytes: send fewer inputs at once, or raise the setting "
        f"{limits.setting} of the gateway."
    )
    return BodyUnreadError(error)
