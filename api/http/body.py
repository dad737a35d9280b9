"""Reads a request's body within its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import ClientDisconnect

from api.http.protocol import WHOLE
from shared.errors import BodyTimeout, BodyTooLarge, RedbatchError, TooManyBodies, UnsupportedMediaType

if TYPE_CHECKING:
    from starlette.requests import Request


ROOM_RETRY_S = 1.0
SMALL_BYTES = 64 * 1024


class BodyUnread(Exception):
    """The body was not read to its end; `error` says why."""

    def __init__(self, error: RedbatchError) -> None:
        super().__init__(error.message)
        self.error = error


class Room:
    """The bytes of all bodies that a gateway may hold at a time, until they are parsed; small ones do not count."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
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

    def give_back(self, size: int) -> None:
        """Leaves the room of a body of so many bytes to others."""
        if size > SMALL_BYTES:
            self._taken -= size


class Bounds(NamedTuple):
    """Of one body: how long it may be, how much time it has, and where it finds room."""

    limit: int
    timeout_s: float
    room: Room


async def read_body(request: Request, headers: Mapping[str, str], bounds: Bounds) -> list[bytes]:
    """Returns the body as it came, in pieces: to join large ones takes a while. Its room is to be given back.

    The bounds hold while reading, whatever Content-Length says.

    Raises:
        BodyUnread: it is over the limit (BodyTooLarge), did not arrive in time (BodyTimeout), is announced as something
            other than JSON (UnsupportedMediaType), or finds no room (TooManyBodies).
    """
    limit, timeout_s, room = bounds
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise BodyUnread(UnsupportedMediaType("Send JSON, with the header Content-Type: application/json."))
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    try:
        if request.scope["state"].get(WHOLE):  # as most are: a timer would cost more than all the rest here
            await _read(request, limit, room, pieces)
        else:
            async with asyncio.timeout(timeout_s):
                await _read(request, limit, room, pieces)
    except BaseException as error:
        room.give_back(sum(map(len, pieces)))
        if not isinstance(error, TimeoutError):
            raise
        late = BodyTimeout(f"The body did not arrive within {timeout_s:g} s: send it at once.")
        raise BodyUnread(late) from None
    return pieces


async def _read(request: Request, limit: int, room: Room, pieces: list[bytes]) -> None:
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        if size + len(piece) > limit:
            raise _too_large(limit)
        if size + len(piece) > SMALL_BYTES and not room.grow(size, len(piece)):
            full = TooManyBodies("Too many large bodies come in: try again soon.", retry_after_s=ROOM_RETRY_S)
            raise BodyUnread(full)
        size += len(piece)
        pieces.append(piece)


def _too_large(limit: int) -> BodyUnread:
    return BodyUnread(BodyTooLarge(f"The body is over the limit of {limit} bytes: send fewer texts at once."))
