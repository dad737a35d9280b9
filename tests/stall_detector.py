"""Notices when the machine stands still: what a test measures meanwhile says nothing of what it is to measure."""

from __future__ import annotations

import threading
import time
from typing import Self

STEP_S = 0.01


class StallDetector:
    """Watches while its block runs; `longest_s` is how much later than asked for a sleep has ended at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="stillness", daemon=True)

    def __enter__(self) -> Self:
        self._watching.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._watching.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            time.sleep(STEP_S)
            self.longest_s = max(self.longest_s, time.monotonic() - began - STEP_S)
