"""Calls that are due later, in one thread: the next attempts of inputs that failed for a passing reason."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count


class DelayedCalls:
    """Calls functions when their time has come, one after the other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()  # of two calls that are due at the same time, the first comes first

    def start(self) -> None:
        """Starts the thread, as a daemon."""
        threading.Thread(target=self._run, name="retry", daemon=True).start()

    def call_after(self, delay_s: float, function: Callable[[], None]) -> None:
        """Has a function called after `delay_s`."""
        with self._changed:
            heapq.heappush(self._calls, (time.monotonic() + delay_s, next(self._numbers), function))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            self._next()()

    def _next(self) -> Callable[[], None]:
        """Waits until a call is due; returns its function."""
        with self._changed:
            while True:
                left_s = self._calls[0][0] - time.monotonic() if self._calls else None
                if left_s is not None and left_s <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(left_s)
