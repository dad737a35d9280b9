"""Reads a request's body within its bounds."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from api.connection import WHOLE
from shared.errors import BodyTimeout, BodyTooLarge, RedbatchError, UnsupportedMediaType

if TYPE_CHECKING:
    from starlette.requests import Request


class BodyUnread(Exception):
    """The body was not read to its end; `error` says why."""

    def __init__(self, error: RedbatchError) -> None:
        super().__init__(error.message)
        self.error = error


async def read_body(request: Request, limit: int, timeout_s: float) -> bytes:
    """Returns the body. The bounds hold while reading, whatever Content-Length says.

    Raises:
        BodyUnread: it is over the limit (BodyTooLarge), did not arrive in time (BodyTimeout), or is announced as
            something other than JSON (UnsupportedMediaType).
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise BodyUnread(UnsupportedMediaType("Send JSON, with the header Content-Type: application/json."))
    message = f"The body is over the limit of {limit} bytes: send fewer texts at once."
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise BodyUnread(BodyTooLarge(message))
    chunks: list[bytes] = []
    size = 0
    # Most bodies come with their head: for these a timer would cost more than all the rest here.
    bound = nullcontext() if request.scope["state"].get(WHOLE) else asyncio.timeout(timeout_s)
    try:
        async with bound:
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise BodyUnread(BodyTooLarge(message))
                chunks.append(chunk)
    except TimeoutError:
        late = BodyTimeout(f"The body did not arrive within {timeout_s:g} s: send it at once.")
        raise BodyUnread(late) from None
    return b"".join(chunks)
