"""Frames between the worker and its engine: two lengths, a message, and a payload of raw bytes. Nothing is pickled.

The payload of BatchCompleted holds, for each of its `results` in order, vectors as float32 or packed values; the other
messages have none. A frame of MIN_SHARED_BYTES or more goes through shared memory, if there is room, and then a
SharedMessage on the socket says where.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence

from msgspec import msgpack

from gpuworker.ipc.messages import FrameError, Message, decode_message, encode_message

_HEAD = struct.Struct("!II")
_VALUES: msgpack.Decoder[tuple[bytes, ...]] = msgpack.Decoder(tuple[bytes, ...])
_RECEIVE_BYTES = 256 * 2**10
MAX_FRAME_BYTES = 1 << 30

FORK, KILL = b"f", b"k"
"""The commands of a fork server: start an engine on the socket that comes with the command, or kill its engines."""

Frame = tuple[Message, bytes]


def pack_values(values: Sequence[bytes]) -> bytes:
    """Returns JSON values as part of a payload."""
    return msgpack.encode(values)


def unpack_values(data: bytes) -> tuple[bytes, ...]:
    """Returns the values that `pack_values` packed."""
    return _VALUES.decode(data)


def encode(message: Message, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    packed = encode_message(message)
    return b"".join((_HEAD.pack(len(packed), len(payload)), packed, payload))


def decode(data: memoryview) -> Frame:
    """Returns the frame that was encoded. Raises FrameError: the bytes are not exactly one frame."""
    if len(data) >= _HEAD.size:
        message_size, payload_size = _HEAD.unpack_from(data)
        middle = _HEAD.size + message_size
        if len(data) == middle + payload_size:
            return decode_message(data[_HEAD.size : middle]), bytes(data[middle:])
    raise FrameError("the data in shared memory is no frame")


class FrameReader:
    """Builds frames from bytes as they arrive. It does no I/O, so that threads and event loops can use it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Adds the next bytes; returns the frames that they complete.

        Raises:
            FrameError: the bytes are no frame, or a frame over the limit; the bytes after it cannot be read either.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        while len(buffer) >= at + _HEAD.size:
            message_size, payload_size = _HEAD.unpack_from(buffer, at)
            if message_size + payload_size > MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {message_size + payload_size} bytes is over the limit")
            start = at + _HEAD.size
            middle, end = start + message_size, start + message_size + payload_size
            if len(buffer) < end:
                break
            frames.append((decode_message(buffer[start:middle]), bytes(buffer[middle:end])))
            at = end
        del buffer[:at]
        return frames


def receive(sock: socket.socket) -> Iterator[Frame]:
    """Yields the frames that arrive on a socket until it ends, in whatever way. Raises FrameError."""
    reader = FrameReader()
    while True:
        try:
            data = sock.recv(_RECEIVE_BYTES)
        except ConnectionError:  # the end of a killed process that left data unread is a reset
            return
        if not data:
            return
        yield from reader.feed(data)
