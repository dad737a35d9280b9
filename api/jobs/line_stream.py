"""Reads a body of lines as it arrives, within the bounds of its size, its pauses, and its memory."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from api.http.body import too_many_bodies_error
from api.http.share_holder import share_holder_of
from api.jobs.inputs import JobInput, Pair
from api.jobs.ndjson import NdjsonReader
from api.memory_budget import SMALL_BYTES, HeldMemory
from shared.errors import BodyTimeoutError, BodyTooLargeError, RequestError
from shared.process.tasks import yield_as_long

if TYPE_CHECKING:
    from fastapi import Request

    from api.state import State

SLICE_BYTES = 4 * 1024
"""Bytes of lines that are parsed at a time: as the shortest inputs, no other task runs for about 3 ms."""


async def read_lines(
    request: Request, headers: Mapping[str, str], reader: NdjsonReader, state: State, held: HeldMemory
) -> AsyncIterator[list[JobInput]]:
    """Yields the inputs of a body of lines as they arrive; reserves the memory of those that are not uploaded yet."""
    waiting: deque[int] = deque(maxlen=state.jobs.inputs_per_entry)  # the upload waits until an entry is full
    async for piece in _read_pieces(request, headers, state):
        for start in range(0, max(1, len(piece)), SLICE_BYTES):
            inputs = await _parse(reader, piece[start : start + SLICE_BYTES], request, state)
            waiting.extend(map(_size_of, inputs))
            if not held.resize(reader.rest_bytes + sum(waiting)):
                raise too_many_bodies_error()
            yield inputs
            await asyncio.sleep(0)
    yield await _parse(reader, None, request, state)


async def _read_pieces(request: Request, headers: Mapping[str, str], state: State) -> AsyncIterator[bytes]:
    """Yields a body of lines as it arrives.

    Each pause between two pieces is limited to `body_timeout_s`. The sum of the pauses is limited to this and the time
    that the bytes so far take at the minimum rate, and to the maximum time of an upload.
    """
    jobs, timeout_s = state.jobs, state.limits.body_timeout_s
    content_length = headers.get("content-length", "0")
    if content_length.isdigit() and int(content_length) > jobs.max_body_bytes:
        raise _too_large(jobs.max_body_bytes)
    size, more_body, waited_s = 0, True, 0.0
    while more_body:
        waiting_since = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise BodyTimeoutError(f"No data arrived for {timeout_s:g} s: send the body without long pauses.") from None
        waited_s += time.monotonic() - waiting_since
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more_body = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > jobs.max_body_bytes:
            raise _too_large(jobs.max_body_bytes)
        if jobs.min_bytes_per_s and more_body and waited_s > timeout_s + size / jobs.min_bytes_per_s:
            raise BodyTimeoutError(
                f"The body arrives at less than {jobs.min_bytes_per_s} bytes a second: send it faster."
            )
        if more_body and waited_s > jobs.max_upload_s:
            raise BodyTimeoutError(
                f"The body has not arrived within {jobs.max_upload_s:g} s: split it into several jobs, or raise the "
                "setting max_upload_s of the gateway."
            )
        yield piece


async def _parse(reader: NdjsonReader, piece: bytes | None, request: Request, state: State) -> list[JobInput]:
    """Returns the inputs of the lines that a piece completes; None completes the last line."""
    parse = reader.end if piece is None else partial(reader.feed, piece)
    if reader.rest_bytes <= SMALL_BYTES or (piece is not None and b"\n" not in piece):
        return parse()
    async with state.parse_lock.turn(share_holder_of(request.scope)), yield_as_long():
        return parse()


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"The body is over the limit of {max_bytes} bytes: split it into several jobs, or raise the setting "
        "max_job_body_bytes of the gateway."
    )


def _size_of(value: JobInput) -> int:
    """Returns the bytes that an input takes in memory; none for an error, which many inputs share."""
    if isinstance(value, RequestError):
        return 0
    return sum(map(sys.getsizeof, value)) if isinstance(value, Pair) else sys.getsizeof(value)
