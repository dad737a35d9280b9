"""A closed loop: each client waits for its answer before it sends the next request."""

from __future__ import annotations

import time
from collections.abc import Sequence

from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import CONNECT_FAILED, LoadGenerator, LoadPlan


class ClosedLoop(LoadGenerator):
    """Each connection is a client that sends its next request after the previous answer."""

    def __init__(self, plan: LoadPlan, connector: Connector, requests: Sequence[bytes]) -> None:
        super().__init__(plan, connector, requests)
        self._num_remaining = plan.requests

    def start(self) -> None:
        """Starts all clients at once."""
        super().start()
        for connection in list(self._connections):
            self._on_idle(connection)

    def _on_idle(self, connection: Connection) -> None:
        now_s = time.monotonic()
        if self._may_send(now_s):
            self._send(connection, now_s)

    def _may_send(self, now_s: float) -> bool:
        """Whether a request may be sent; counts measured ones. Stops the run after the last or after its duration."""
        duration_s = self.plan.duration_s
        if duration_s is not None and now_s >= self.measure_start_s + duration_s:
            self.stop()
        if self.stopped:
            return False
        if self._num_remaining is not None and now_s >= self.measure_start_s:
            if self._num_remaining == 0:
                self.stop()
                return False
            self._num_remaining -= 1
        return True

    def _on_disconnect(self) -> None:
        if not self.stopped:
            self._start_connecting()

    def _num_waiting(self) -> int:
        return 0

    def _expire_waiting(self, before_s: float) -> None:
        """Requests of a closed loop never wait for a connection."""

    def _on_connect_failed(self, start_s: float) -> None:
        """Logs an error for the client, because it would have sent a request."""
        if self._may_send(start_s):
            self._log_request(start_s, CONNECT_FAILED, 0, 0)
