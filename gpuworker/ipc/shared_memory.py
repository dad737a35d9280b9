"""Memory that a worker shares with its engine: a long frame is written there once, and the socket only says where.

There is one memory for each direction, and each process reads what the other writes. The memory for frames to the
engine also holds until when the engine may use its GPU, so that it can see that at any time, even while it loads a
model.

A socket would copy a frame twice, a few hundred KiB at a time, and wake both processes for each part. The memory has
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
"""A shorter frame goes through the socket."""


def create_shared_memory(size: int = SIZE_BYTES) -> int:
    """Returns the descriptor of new memory for this many bytes.

    Raises:
        OSError: this system has no memfd_create(2), or cannot provide the memory.
    """
    if sys.platform != "linux":
        raise OSError("memfd_create(2) is Linux's")
    descriptor = os.memfd_create("redbatch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, _HEAD + size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class SharedMemoryWriter:
    """The side that writes: data goes where there is room, which is free again when the other side has read it.

    Args:
        descriptor: the memory's file descriptor, which is closed here.

    Raises:
        OSError: the memory cannot be mapped.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            self._size = os.fstat(descriptor).st_size - _HEAD
            self._map = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
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
        """Frees the data at an offset, which has been read."""
        self._taken = [each for each in self._taken if each[0] != at]
        if not self._taken and self._high_water:
            pages = -(-self._high_water // mmap.PAGESIZE) * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_REMOVE, _HEAD, min(pages, self._size))
            self._high_water = 0

    def close(self) -> None:
        """Closes the memory. It is freed when the other process has ended, too."""
        self._map.close()


class SharedMemoryReader:
    """The side that reads.

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

    def close(self) -> None:
        """Closes the memory; nothing that `read` returned may be in use."""
        self._map.close()


class WorkerMemory:
    """The worker's side of the memory that it shares with one engine.

    Attributes:
        writer: for frames to the engine.
        reader: for frames from the engine.
        descriptors: of both, for the engine, in this order.

    Raises:
        OSError: this system has no memfd_create(2), or cannot provide the memory.
    """

    def __init__(self, size: int = SIZE_BYTES) -> None:
        self.descriptors: list[int] = []
        try:
            self.descriptors.append(create_shared_memory(size))
            self.descriptors.append(create_shared_memory(size))
            self.writer = SharedMemoryWriter(os.dup(self.descriptors[0]))
            self.reader = SharedMemoryReader(os.dup(self.descriptors[1]))
        except OSError:
            self._close_descriptors()
            raise

    def close(self) -> None:
        """Closes both. They are freed when the engine has ended, too."""
        self.writer.close()
        self.reader.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for each in self.descriptors:
            os.close(each)
        self.descriptors.clear()
