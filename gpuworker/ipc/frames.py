"""Messages between the worker and its engine: a msgpack map and, after it, raw bytes. Nothing is pickled.

From the worker:  start {device, lock}: the first frame of all · turn {lock}
                  shared {at, size}: the header of a frame stands there in the arena, until `read {at}`
                  add {entries: [{key, op, inputs, options, since, deadline, attempts, bulk}]} · drop {keys} · drain {}
From the engine:  ready {model, dim, device, revision, commit, dtype, pooling, max_input_tokens,
                         max_batch_tokens}
                  begun {keys} · unbegun {keys} · want {} · has {} · done {} · read {at}
                  ran {more, size, inputs, tokens, padded, seconds, gap, busy_s, ended, behind, full,
                       full_s, max_batch_tokens, done: [{key, bytes, dim, counts, tokens, read_s, read_at, began}],
                       paused: [key], failed: [{key, code, message}]}
                       + for each of `done`, in order, so many bytes: vectors as float32, or a msgpack list of JSON
                  failed {message}: the model cannot be loaded
Of a long `ran` what is done goes in several frames; those with `more` to follow are not measured.
Options are those of shared.messages, in their order, or nil. `dim` is not there for values, and `counts` only if an
input may have several vectors. Times are seconds of the monotonic clock, which processes of one host share.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

_HEAD = struct.Struct("!II")
_RECEIVED_BYTES = 256 * 2**10
MAX_FRAME_BYTES = 1 << 30

FORK, KILL = b"f", b"k"
"""What a fork server is told: to start an engine on the socket that comes with it, or to kill those that it has."""

Header = dict[str, Any]
Frame = tuple[Header, bytes]


class FrameError(ValueError):
    """What came over the socket is not a frame."""


def pack(values: Sequence[bytes]) -> bytes:
    """Returns values as the part of a payload."""
    packed: bytes = msgpack.packb(values)
    return packed


def unpack(data: bytes) -> tuple[bytes, ...]:
    """Returns the values that `pack` packed."""
    return tuple(msgpack.unpackb(data, max_bin_len=len(data)))


def packed(header: Header) -> bytes:
    """Returns the header of a frame alone."""
    told: bytes = msgpack.packb(header)
    return told


def encode(header: Header, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    return framed(packed(header), payload)


def framed(packed: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame with a header that is packed."""
    return b"".join((_HEAD.pack(len(packed), len(payload)), packed, payload))


class Reader:
    """Puts frames together from bytes as they come: no I/O, so that it reads for threads and event loops alike."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Takes in the next bytes and returns the frames that are whole by them.

        Raises:
            FrameError: what came is no frame, or one over the limit; the rest cannot be read either.
        """
        buffer = self._buffer
        buffer += data
        found: list[Frame] = []
        at = 0
        while len(buffer) >= at + _HEAD.size:
            header_size, payload_size = _HEAD.unpack_from(buffer, at)
            if header_size + payload_size > MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {header_size + payload_size} bytes is over the limit")
            start = at + _HEAD.size
            middle, end = start + header_size, start + header_size + payload_size
            if len(buffer) < end:
                break
            found.append((unpacked(buffer[start:middle]), bytes(buffer[middle:end])))
            at = end
        del buffer[:at]
        return found


def receive(sock: socket.socket) -> Iterator[Frame]:
    """Yields the frames that come over a socket, to its end, however it ended. Raises FrameError."""
    reader = Reader()
    while True:
        try:
            data = sock.recv(_RECEIVED_BYTES)
        except ConnectionError:  # with something for it left unread, the end of a killed process is a reset
            return
        if not data:
            return
        yield from reader.feed(data)


def unpacked(packed: bytes | bytearray | memoryview) -> Header:
    """Returns the header that was packed. Raises FrameError."""
    try:
        header = msgpack.unpackb(packed, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"a header is not msgpack: {type(error).__name__}") from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise FrameError("a frame is a map with a kind")
    return header
