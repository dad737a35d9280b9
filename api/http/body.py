"""Reads a request's body within its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import ClientDisconnect

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


ROOM_RETRY_S = 1.0
SMALL_BYTES = 64 * 1024


class BodyUnreadError(Exception):
    """The body was not read to its end; `error` says why."""

    def __init__(self, error: RedbatchError) -> None:
        super().__init__(error.message)
        self.error = error


class BodyBudget:
    """The bytes of all bodies that a gateway may hold at a time, until they are parsed; small ones do not count."""

    def __init__(self, max_bytes: int) -> None:
        self._most = max_bytes
        self._taken = 0

    def grow(self, size: int, by: int) -> bool:
        """Takes room for a large body that had so many bytes, and has so many more now, if there is any.

        One that is alone always finds some.
        """
        others = self._taken - (size if size > SMALL_BYTES else 0)
        if others and others + size + by > self._most:
            return False
        self._taken = others + size + by
        return True

    def release(self, size: int) -> None:
        """Leaves the room of a body of so many bytes to others."""
        if size > SMALL_BYTES:
            self._taken -= size


class BodyLimits(NamedTuple):
    """Of one body: how long it may be, how much time it has, and where it finds room."""

    limit: int
    timeout_s: float
    room: BodyBudget


async def read_body(request: Request, headers: Mapping[str, str], bounds: BodyLimits) -> list[bytes]:
    """Returns the body as it came, in pieces: to join large ones takes a while. Its room is to be given back.

    The bounds hold while reading, whatever Content-Length says.

    Raises:
        BodyUnreadError: the body is over the limit (BodyTooLargeError), did not arrive in time (BodyTimeoutError), is
            announced as something other than JSON (UnsupportedMediaTypeError), or finds no room (TooManyBodiesError).
    """
    limit, timeout_s, room = bounds
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise BodyUnreadError(UnsupportedMediaTypeError("Send JSON, with the header Content-Type: application/json."))
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    try:
        if request.scope["state"].get(BODY_COMPLETE):  # as most are: a timer would cost more than all the rest here
            await _read(request, limit, room, pieces)
        else:
            async with asyncio.timeout(timeout_s):
                await _read(request, limit, room, pieces)
    except BaseException as error:
        room.release(sum(map(len, pieces)))
        if not isinstance(error, TimeoutError):
            raise
        late = BodyTimeoutError(f"The body did not arrive within {timeout_s:g} s: send it at once.")
        raise BodyUnreadError(late) from None
    return pieces


async def _read(request: Request, limit: int, room: BodyBudget, pieces: list[bytes]) -> None:
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        if size + len(piece) > limit:
            raise _too_large(limit)
        if size + len(piece) > SMALL_BYTES and not room.grow(size, len(piece)):
            full = TooManyBodiesError("Too many large bodies come in: try again soon.", retry_after_s=ROOM_RETRY_S)
            raise BodyUnreadError(full)
        size += len(piece)
        pieces.append(piece)


def _too_large(limit: int) -> BodyUnreadError:
    return BodyUnreadError(BodyTooLargeError(f"The body is over the limit of {limit} bytes: send fewer texts at once."))
