"""Which entries an engine runs, and since when: memory that a worker shares with its engines.

A message for each start would wake the worker while its engine computes. In memory, the engine notes a start in less
than a microsecond, and the worker can read it when it needs to know, even of an engine that has died.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable

from gpuworker.ipc.shared_memory import create_shared_memory

NUM_SLOTS = 2**17
"""More than the entries that a worker ever holds (twice the largest `claim_window`) and those that rest."""

NUM_RESTING = 2**15
"""A slot rests until this many others are free, too: an engine that still runs an entry that was dropped meanwhile must
not seem to run another one."""

_SIZE_BYTES = NUM_SLOTS * 8


class RunTable:
    """The start of the run that goes on now, for each slot. Each entry that a worker holds has a slot.

    The engine alone notes starts and ends, the worker alone reads and clears.

    Args:
        descriptor: of the memory, which is closed with this object; None for new memory.

    Attributes:
        descriptor: of the memory.

    Raises:
        OSError: the system cannot provide the memory.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _create_memory() if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        self._starts = memoryview(mmap.mmap(self.descriptor, _SIZE_BYTES)).cast("d")
        self._num_runs: dict[int, int] = {}
        self._lock = threading.Lock()

    def begin(self, slots: Iterable[int]) -> None:
        """Notes that a run begins for each slot: of a part of its entry, while other parts may run already."""
        now = time.monotonic()
        with self._lock:
            for slot in slots:
                number = self._num_runs[slot] = self._num_runs.get(slot, 0) + 1
                if number == 1:
                    self._starts[slot] = now

    def end(self, slots: Iterable[int]) -> None:
        """Notes that a run has ended for each slot. Call it after the result is sent: until then, a death accuses."""
        with self._lock:
            for slot in slots:
                number = self._num_runs.pop(slot) - 1
                if number:
                    self._num_runs[slot] = number
                else:
                    self._starts[slot] = 0.0

    def started_at(self, slot: int) -> float | None:
        """Returns since when the entry of a slot runs (monotonic clock), s; None if it does not run."""
        return self._starts[slot] or None

    def clear(self) -> None:
        """Forgets all runs of an engine that is dead."""
        self._starts.cast("B")[:] = bytes(_SIZE_BYTES)


class Slots:
    """The slots of a table that entries have, or may have."""

    def __init__(self) -> None:
        self._num_used = 0
        self._free: deque[int] = deque()

    def take(self) -> int:
        """Returns a slot that no entry has: the one that is free for longest, or a new one."""
        if len(self._free) > NUM_RESTING or self._num_used == NUM_SLOTS:
            return self._free.popleft()
        self._num_used += 1
        return self._num_used - 1

    def free(self, slot: int) -> None:
        """Frees the slot of an entry that is held no more."""
        self._free.append(slot)


def _create_memory() -> int:
    try:
        return create_shared_memory(_SIZE_BYTES)
    except OSError:  # no memfd_create(2)
        with tempfile.TemporaryFile() as file:
            file.truncate(_SIZE_BYTES)
            return os.dup(file.fileno())
