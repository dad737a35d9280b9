"""An open loop: requests are sent at scheduled times, independent of the server."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import CONNECT_FAILED, NEVER_SENT, LoadGenerator, LoadPlan
from redbatch.bench.precise_timer import PreciseTimer


class OpenLoop(LoadGenerator):
    """Sends each request when it is due over any idle connection, and opens more connections if there are too few.

    Args:
        plan: limits of the load; `max_connections` limits the connections.
        connector: opens connections.
        requests: encoded requests, sent in rotation.
        schedule: times at which requests are due, in seconds since the start of the load.
    """

    def __init__(
        self, plan: LoadPlan, connector: Connector, requests: Sequence[bytes], schedule: Iterator[float]
    ) -> None:
        super().__init__(plan, connector, requests)
        self.delayed_requests = 0  # requests for which no connection was idle and no further one allowed
        self.peak_lag_s = 0.0  # maximum time by which this process sent a request too late
        self._schedule = schedule
        self._due: deque[float] = deque()
        self._idle: list[Connection] = []
        self._timer = PreciseTimer(self._on_timer)
        self._next_s: float | None = None
        self._origin_s = 0.0

    def start(self) -> None:
        """Starts the schedule; the first request is due after the first gap."""
        super().start()
        self._origin_s = self.measure_start_s - self.plan.warmup_s
        self._idle = list(self._connections)
        self._advance()
        self._on_timer()

    def stop(self) -> None:
        """Also sends requests that were due until now: they would be missing if this process was blocked at the end."""
        if not self.stopped:
            self._catch_up()
        super().stop()

    def interrupt(self) -> None:
        """Ends the run at once. Due requests that still wait have used up their time, and are errors."""
        self.stop()
        while self._due:
            self._log_request(self._due.popleft(), NEVER_SENT, 0, 0)
        super().interrupt()

    async def close(self) -> None:
        """Stops the timer and closes all connections."""
        self._timer.close()
        await super().close()

    def _advance(self) -> None:
        at_s = next(self._schedule, None)
        self._next_s = None if at_s is None else self._origin_s + at_s

    def _on_timer(self) -> None:
        """Sends due requests, and sets the timer to the next one."""
        if self.stopped:
            return
        self._catch_up()
        if self._next_s is not None:
            self._timer.set(self._next_s)
        elif self.plan.duration_s is None:
            self.stop()

    def _catch_up(self) -> None:
        now_s = time.monotonic()
        while self._next_s is not None and self._next_s <= now_s:
            self.peak_lag_s = max(self.peak_lag_s, now_s - self._next_s)
            self._send_due(self._next_s)
            self._advance()

    def _send_due(self, at_s: float) -> None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                self._send(connection, at_s)
                return
        self._due.append(at_s)
        if not self._connect_if_allowed():
            self.delayed_requests += 1

    def _connect_if_allowed(self) -> bool:
        if len(self._connections) + self._num_connecting >= self.plan.max_connections:
            return False
        self._start_connecting()
        return True

    def _on_idle(self, connection: Connection) -> None:
        if self._due:
            self._send(connection, self._due.popleft())
        else:
            self._idle.append(connection)

    def _on_disconnect(self) -> None:
        if len(self._due) > self._num_connecting:
            self._connect_if_allowed()

    def _on_connect_failed(self, _start_s: float) -> None:
        """Fails all waiting requests if there is no connection at all, otherwise the first one."""
        num_failed = 1 if self._connections else len(self._due)
        for _ in range(min(num_failed, len(self._due))):
            self._log_request(self._due.popleft(), CONNECT_FAILED, 0, 0)

    def _num_waiting(self) -> int:
        return len(self._due)

    def _expire_waiting(self, before_s: float) -> None:
        while self._due and self._due[0] < before_s:
            self._log_request(self._due.popleft(), NEVER_SENT, 0, 0)
        self._check_ended()
