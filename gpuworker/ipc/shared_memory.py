"""Memory that a worker shares with its engine: what is large goes there once, and the socket only says where.

Until when the engine may use its GPU stands there too: it sees that at any time, also while it loads a model.

Through a socket it would be copied twice, a few hundred KiB at a time, with both processes waking for each. The memory
has no name (memfd_create(2)): it is gone with the last of the two, however they end.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from bisect import insort

SIZE_BYTES = 256 * 2**20
"""No memory until it is used: pages come with the first write, and go when all is free again."""

_HEAD = mmap.PAGESIZE
_UNTIL = struct.Struct("d")

LARGE_BYTES = 2**20
"""What is shorter goes through the socket."""


class Arena:
    """The worker's side: puts data where there is room, and has the room back when the engine has read it.

    Attributes:
        descriptor: of the memory, for the engine.

    Raises:
        OSError: this system has no such memory.
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
        self._high = 0

    def grant(self, until: float) -> None:
        """Has the engine use its GPU until then (monotonic clock)."""
        self._map[: _UNTIL.size] = _UNTIL.pack(until)  # at once: the engine may look in between

    def put(self, data: bytes) -> int | None:
        """Returns where data stands now; None if there is no room for it."""
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
        self._high = max(self._high, end)
        return at

    def free(self, at: int) -> None:
        """What stood there has been read."""
        self._taken = [each for each in self._taken if each[0] != at]
        if not self._taken and self._high:
            pages = -(-self._high // mmap.PAGESIZE) * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_REMOVE, _HEAD, min(pages, self._size))
            self._high = 0

    def close(self) -> None:
        """Lets go of the memory; it is gone when the engine is, too."""
        self._map.close()
        os.close(self.descriptor)


class Window:
    """The engine's side.

    Args:
        descriptor: of the memory; it is closed here.
    """

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        os.close(descriptor)

    def until(self) -> float:
        """Returns until when this engine may use its GPU."""
        until: float = _UNTIL.unpack_from(self._map, 0)[0]
        return until

    def read(self, at: int, size: int) -> memoryview:
        """Returns what stands there, as it is: to be read before the worker is told so."""
        return memoryview(self._map)[_HEAD + at : _HEAD + at + size]
