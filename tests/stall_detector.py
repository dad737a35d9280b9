"""Detects stalls of the machine, during which the time measurements of a test are meaningless."""

from __future__ import annotations

import threading
import time
from typing import Self

STEP_S = 0.01


class StallDetector:
    """Sleeps repeatedly in a thread while the block runs; `longest_s` is the longest delay of the end of a sleep."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="stall detector", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            time.sleep(STEP_S)
            self.longest_s = max(self.longest_s, time.monotonic() - start - STEP_S)
