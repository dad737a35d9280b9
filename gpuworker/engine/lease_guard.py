"""The engine's own watch over its lease of a GPU: it ends in time, also if its worker cannot tell it to.

A worker that is stopped or hangs neither renews nor kills. So the engine knows until when it may run, and dies then.
After a pause of this process too: it looks at the clock before anything else of it runs for long.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

OVER = 3
"""Exit code of an engine whose time on the GPU is over."""


class Tenure:
    """Ends this process when it uses the GPU and its time is over.

    Args:
        until: says when that is (monotonic clock). It may move on at any time, and never back.
    """

    def __init__(self, until: Callable[[], float]) -> None:
        self._until = until
        self._uses = threading.Event()
        threading.Thread(target=self._watch, name="tenure", daemon=True).start()

    def begin(self) -> None:
        """It uses the GPU from now on."""
        self._uses.set()

    def end(self) -> None:
        """It does not, for now."""
        self._uses.clear()

    def _watch(self) -> None:
        while True:
            self._uses.wait()
            left_s = self._until() - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
            elif self._uses.is_set() and self._until() <= time.monotonic():  # it may be another turn by now
                sys.stderr.write("the lease of the GPU is over: the engine ends\n")
                sys.stderr.flush()
                os._exit(OVER)
