"""An alarm for the event loop that keeps its time to some 50 µs. The loop's own timers know whole milliseconds only."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE_TIME = 1
_EXPIRATIONS_BYTES = 8


class _TimerSpec(ctypes.Structure):
    """The kernel's `struct itimerspec`: an interval, which stays 0, and the time itself."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class PreciseTimer:
    """Calls back once at each time that it is set to. Linux has it as timerfd; elsewhere the loop's timers must do."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None)
        self._fd = -1
        if hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._ring)

    def set(self, at_s: float) -> None:
        """Sets it to a time of `time.monotonic()`; one that has passed rings at once."""
        if self._fd < 0:
            self._handle = self._loop.call_later(at_s - time.monotonic(), self._callback)
            return
        whole_s = int(at_s)
        # 0 would switch it off.
        times = _TimerSpec(0, 0, whole_s, max(1, int((at_s - whole_s) * 1e9)))
        self._libc.timerfd_settime(self._fd, _ABSOLUTE_TIME, ctypes.byref(times), None)

    def close(self) -> None:
        """Rings no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, _EXPIRATIONS_BYTES)
        self._callback()
