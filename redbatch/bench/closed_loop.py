"""Closed loop: the server's answers determine when requests are sent."""

from __future__ import annotations

import time
from collections.abc import Sequence

from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import CONNECT_FAILED, LoadGenerator, LoadPlan


class ClosedLoop(LoadGenerator):
    """Each connection is a client that sends its next request when it has the answer to the last."""

    def __init__(self, plan: LoadPlan, dialer: Connector, requests: Sequence[bytes]) -> None:
        super().__init__(plan, dialer, requests)
        self._left = plan.requests

    def begin(self) -> None:
        """All clients begin at once."""
        super().begin()
        for connection in list(self._connections):
            self._free(connection)

    def _free(self, connection: Connection) -> None:
        now_s = time.monotonic()
        if self._may_begin(now_s):
            self._send(connection, now_s)

    def _may_begin(self, now_s: float) -> bool:
        """Counts the requests that are measured; the run stops when all of them are sent, or when its time is over."""
        duration_s = self.plan.duration_s
        if duration_s is not None and now_s >= self.start_s + duration_s:
            self.stop()
        if self.stopped:
            return False
        if self._left is not None and now_s >= self.start_s:
            if self._left == 0:
                self.stop()
                return False
            self._left -= 1
        return True

    def _missing(self) -> None:
        if not self.stopped:
            self._dial()

    def _waiting(self) -> int:
        return 0

    def _give_up_waiting(self, before_s: float) -> None:
        """No request of a closed loop waits."""

    def _unreachable(self, began_s: float) -> None:
        """A client that finds no server has an error too."""
        if self._may_begin(began_s):
            self._add(began_s, CONNECT_FAILED, 0, 0)
