"""The engine's own watch over its GPU lease: the engine ends in time, even if its worker cannot end it.

A worker that is stopped or hangs neither renews its lease nor kills its engine. So the engine knows until when it may
run, and dies then. This also holds after a pause of this process: it looks at the clock before any other part of it
runs for long.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

LEASE_EXPIRED = 3
"""Exit code of an engine whose lease has expired."""


class LeaseGuard:
    """Ends this process when it uses the GPU and its lease has expired.

    Args:
        until: returns when the lease expires (monotonic clock). That may move forward at any time, and never back.
    """

    def __init__(self, until: Callable[[], float]) -> None:
        self._until = until
        self._in_use = threading.Event()
        threading.Thread(target=self._watch, name="lease guard", daemon=True).start()

    def begin(self) -> None:
        """The process uses the GPU from now on."""
        self._in_use.set()

    def end(self) -> None:
        """The process does not use the GPU for now."""
        self._in_use.clear()

    def _watch(self) -> None:
        while True:
            self._in_use.wait()
            remaining_s = self._until() - time.monotonic()
            if remaining_s > 0:
                time.sleep(remaining_s)
            elif self._in_use.is_set() and self._until() <= time.monotonic():  # it may be another turn by now
                sys.stderr.write("the GPU lease has expired: the engine ends\n")
                sys.stderr.flush()
                os._exit(LEASE_EXPIRED)
