"""A timer for the event loop with a precision of about 50 µs. The loop's own timers have a resolution of 1 ms."""

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
    """The kernel's `struct itimerspec`: an interval, which stays 0, and the expiration time."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class PreciseTimer:
    """Calls back once at each time to which it is set. Uses timerfd on Linux, and the loop's timers elsewhere."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None)
        self._fd = -1
        if hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._on_expiration)

    def set(self, at_s: float) -> None:
        """Sets the timer to a time of `time.monotonic()`; a time in the past calls back at once."""
        if self._fd < 0:
            self._handle = self._loop.call_later(at_s - time.monotonic(), self._callback)
            return
        whole_s = int(at_s)
        # 0 would disarm the timer.
        times = _TimerSpec(0, 0, whole_s, max(1, int((at_s - whole_s) * 1e9)))
        self._libc.timerfd_settime(self._fd, _ABSOLUTE_TIME, ctypes.byref(times), None)

    def close(self) -> None:
        """Stops the timer and releases its descriptor."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_expiration(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, _EXPIRATIONS_BYTES)
        self._callback()
