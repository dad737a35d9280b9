"""Messages between the worker and its engine: a msgpack map and, after it, raw bytes. Nothing is pickled.

From the worker:  add {entries: [{key, inputs, since, deadline, attempts, bulk}]} · drop {keys} · drain {}
From the engine:  ready {model, dim, device, max_batch_tokens} · begun {keys} · unbegun {keys}
                  ran {size, inputs, tokens, padded, seconds, gap, ended, behind, full_s,
                       max_batch_tokens, dim,
                       done: [{key, n, began, seconds, size}], paused: [key], failed: [{key, code, message}]}
                       + float32 vectors of `done`, in order
                  failed {message}: the model cannot be loaded
Times are seconds of the monotonic clock, which processes of one host share.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, BinaryIO

import msgpack

_HEAD = struct.Struct("!II")
MAX_FRAME_BYTES = 1 << 30

FORK, KILL = b"f", b"k"
"""What a fork server is told: to start an engine on the socket that comes with it, or to kill those that it has."""

Header = dict[str, Any]


class FrameError(ValueError):
    """What came over the socket is not a frame."""


def encode(header: Header, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    packed: bytes = msgpack.packb(header)
    return b"".join((_HEAD.pack(len(packed), len(payload)), packed, payload))


def _sizes(head: bytes) -> tuple[int, int]:
    sizes: tuple[int, int] = _HEAD.unpack(head)
    if sum(sizes) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {sum(sizes)} bytes is over the limit")
    return sizes


def _header(packed: bytes) -> Header:
    try:
        header = msgpack.unpackb(packed, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"a header is not msgpack: {type(error).__name__}") from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise FrameError("a frame is a map with a kind")
    return header


def read(stream: BinaryIO) -> tuple[Header, bytes] | None:
    """Reads a frame, or returns None at the end of the stream, however it ended."""
    try:
        head = stream.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        header_size, payload_size = _sizes(head)
        body = stream.read(header_size + payload_size)
    except ConnectionError:
        return None
    if len(body) < header_size + payload_size:
        return None
    return _header(body[:header_size]), body[header_size:]


async def read_async(stream: asyncio.StreamReader) -> tuple[Header, bytes] | None:
    """Reads a frame, or returns None at the end of the stream."""
    try:
        header_size, payload_size = _sizes(await stream.readexactly(_HEAD.size))
        header = _header(await stream.readexactly(header_size))
        return header, await stream.readexactly(payload_size) if payload_size else b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
