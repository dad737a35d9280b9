"""Memory that a worker shares with its engine: a long message is written there once, and the socket only says where.

The memory also holds until when the engine may use its GPU, so that it can see that at any time, even while it loads a
model.

A socket would copy a message twice, a few hundred KiB at a time, and wake both processes for each part. The memory has
no name (memfd_create(2)): it is freed with the last of the two processes, however they end.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from bisect import insort

SIZE_BYTES = 256 * 2**20
"""Takes no memory until it is used: pages come with the first write, and go when everything is free again."""

_HEAD = mmap.PAGESIZE
_UNTIL = struct.Struct("d")

MIN_SHARED_BYTES = 2**20
"""A shorter message goes through the socket."""


class SharedMemoryWriter:
    """The worker's side: writes data where there is room; the room is free again when the engine has read it.

    Attributes:
        descriptor: the memory's file descriptor, for the engine.

    Raises:
        OSError: this system has no memfd_create(2), or cannot provide the memory.
    """

    def __init__(self, size: int = SIZE_BYTES) -> None:
        if sys.platform != "linux":
            raise OSError("memfd_create(2) is Linux's")
        self._size = size
        self.descriptor = os.memfd_create("redbatch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, _HEAD + size)
            self._map = mmap.mmap(self.descriptor, _HEAD + size)
        except OSError:
            os.close(self.descriptor)
            raise
        self._taken: list[tuple[int, int]] = []
        self._high_water = 0

    def grant(self, until: float) -> None:
        """Allows the engine to use its GPU until then (monotonic clock)."""
        self._map[: _UNTIL.size] = _UNTIL.pack(until)  # in one write: the engine may read at any moment

    def put(self, data: bytes) -> int | None:
        """Writes data; returns its offset, or None if there is no room for it."""
        at = 0
        for start, end in self._taken:
            if start - at >= len(data):
                break
            at = end
        end = at + len(data)
        if end > self._size:
            return None
        self._map[_HEAD + at : _HEAD + end] = data
        insort(self._taken, (at, end))
        self._high_water = max(self._high_water, end)
        return at

    def free(self, at: int) -> None:
        """Frees the data at an offset, which the engine has read."""
        self._taken = [each for each in self._taken if each[0] != at]
        if not self._taken and self._high_water:
            pages = -(-self._high_water // mmap.PAGESIZE) * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_REMOVE, _HEAD, min(pages, self._size))
            self._high_water = 0

    def close(self) -> None:
        """Closes the memory. It is freed when the engine has ended, too."""
        self._map.close()
        os.close(self.descriptor)


class SharedMemoryReader:
    """The engine's side.

    Args:
        descriptor: the memory's file descriptor, which is closed here.
    """

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        os.close(descriptor)

    def until(self) -> float:
        """Returns until when this engine may use its GPU (monotonic clock)."""
        until: float = _UNTIL.unpack_from(self._map, 0)[0]
        return until

    def read(self, at: int, size: int) -> memoryview:
        """Returns the data at an offset, without a copy: use it before SharedMessageRead is sent."""
        return memoryview(self._map)[_HEAD + at : _HEAD + at + size]
