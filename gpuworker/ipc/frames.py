"""Frames between the worker and its engine: two lengths, a message, and a payload of raw bytes. Nothing is pickled.

The payload of BatchCompleted holds, for each of its `done` entries in order, vectors as float32 or packed values; the
other messages have none. A message of LARGE_BYTES or more goes through shared memory, and its frame says where.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence

import msgpack

from gpuworker.ipc.messages import FrameError, Message, decode_message, encode_message

_HEAD = struct.Struct("!II")
_RECEIVED_BYTES = 256 * 2**10
MAX_FRAME_BYTES = 1 << 30

FORK, KILL = b"f", b"k"
"""What a fork server is told: to start an engine on the socket that comes with it, or to kill those that it has."""

Frame = tuple[Message, bytes]


def pack(values: Sequence[bytes]) -> bytes:
    """Returns values as the part of a payload."""
    packed: bytes = msgpack.packb(values)
    return packed


def unpack(data: bytes) -> tuple[bytes, ...]:
    """Returns the values that `pack` packed."""
    return tuple(msgpack.unpackb(data, max_bin_len=len(data)))


def encode(message: Message, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    return framed(encode_message(message), payload)


def framed(packed: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame with a message that is packed already."""
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
            found.append((decode_message(buffer[start:middle]), bytes(buffer[middle:end])))
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
