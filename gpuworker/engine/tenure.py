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

from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.turns import OWN, SharedTurn, Turn
from gpuworker.engine_options import EngineOptions
from gpuworker.frames import Header

LOOK_S = 0.05
OVER = 3
"""Exit code of an engine whose time on the GPU is over."""


class Tenure:
    """Ends this process when its time is over. Nobody's time is over before one is set."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="tenure", daemon=True).start()

    def set(self, until: float | None) -> None:
        """Sets when it is over (monotonic clock); None while it does not use the GPU."""
        with self._changed:
            self._until = until
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                until = self._until
                if until is None:
                    self._changed.wait()
                    continue
                left_s = until - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
            sys.stderr.write("the lease of the GPU is over: the engine ends\n")
            sys.stderr.flush()
            os._exit(OVER)


class Presence:
    """An engine on its GPU, as its worker grants it.

    Args:
        options: of the engine.
        start: the first frame of its worker.
        send: sends the worker a frame.

    Attributes:
        turn: to be taken before each batch.
    """

    def __init__(self, options: EngineOptions, start: Header, send: Callable[[Header], None]) -> None:
        self.turn: Turn = OWN
        self._shared: SharedTurn | None = None
        self._tenure: Tenure | None = None
        if options.gpu_lease == "off":
            return
        self._tenure, lock = Tenure(), HostLock(options.gpu_lease_dir)
        if options.gpu_lease == "batch":
            self.turn = self._shared = SharedTurn(
                self._tenure.set, lock, lambda: send({"kind": "want"}), lambda: send({"kind": "done"})
            )
        else:
            self._tenure.set(start["until"])
            lock.take(start["lock"])

    def take(self, header: Header) -> bool:
        """Takes in a frame; returns whether it was about the GPU."""
        if header["kind"] == "turn" and self._shared is not None:
            self._shared.grant(header["until"], header["lock"])
        elif header["kind"] == "lease" and self._shared is not None:
            self._shared.extend(header["until"])
        elif header["kind"] == "lease" and self._tenure is not None:
            self._tenure.set(header["until"])
        else:
            return False
        return True
