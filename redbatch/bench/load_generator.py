"""The common part of both loops: connections, the time limits of requests, and the log of outcomes.

Closed loop: each client sends its next request after the previous answer, so a slow server slows its own load.
Open loop: requests are due at scheduled times, independent of the server. The latency of each counts from the time at
which it was due, including time spent waiting here behind slow answers; otherwise a stall of the server would hide
itself.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

from redbatch.bench.answers import OK, WRONG_ANSWER, Answer, AnsweredError, error_message, outcome_code
from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.request_log import RequestLog

NO_ANSWER = "no_answer"
NEVER_SENT = "never_sent"
CONNECT_FAILED = "connect_failed"
NO_ANSWER_GRACE_S = 5.0
MAX_TIMER_EARLY_S = 0.002
"""Timers of an event loop have a resolution of 1 ms and may fire early by up to this. Without this margin, the run
could stop before its last due request."""

REFUSALS = frozenset((400, 401, 403, 404, 405, 415, 422))
"""Statuses that say that a request is wrong. One text may be, where others are not: see MIN_REFUSALS."""

MIN_REFUSALS = 8
"""The run ends if at least this many requests were answered, all with the same error of these."""

SWEEP_INTERVAL_S = 0.25
RECONNECT_DELAY_S = 0.1


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Duration or number of requests, limits, and checks. Either `duration_s` or `requests` is given, not both."""

    warmup_s: float
    duration_s: float | None
    requests: int | None
    max_connections: int
    late_after_s: float
    check_inputs: int | None  # good answers must contain this many vectors; None: not checked


class UsageSnapshot(NamedTuple):
    """CPU time of this process, in seconds, and the number of finished requests, at a time."""

    at_s: float
    cpu_s: float
    num_finished: int


class LoadGenerator(ABC):
    """A source of load. Measuring begins at `measure_start_s`, on the clock of `time.monotonic()`."""

    def __init__(self, plan: LoadPlan, connector: Connector, requests: Sequence[bytes]) -> None:
        self.plan = plan
        self.log = RequestLog()
        self.measure_start_s = 0.0
        self.in_flight = 0
        self.peak_in_flight = 0
        self.unanswered = 0  # requests in flight when the run was interrupted
        self.first_error: AnsweredError | None = None
        self.refusal: AnsweredError | None = None  # of all requests: the run is over
        self.stopped = False
        self.ended = asyncio.Event()
        self.snapshots: list[UsageSnapshot] = []  # at the beginning and at the end of the measurement
        self._connections: set[Connection] = set()
        self._connector = connector
        self._requests = cycle(requests)
        self._num_connecting = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect_all(self, num_connections: int) -> None:
        """Opens the initial connections of a run. Raises OSError if the server cannot be reached."""
        await self._connector.connect_all(self, num_connections, self._connections)

    def start(self) -> None:
        """Starts sending."""
        loop = asyncio.get_running_loop()
        self.measure_start_s = time.monotonic() + self.plan.warmup_s
        loop.call_later(self.plan.warmup_s, self._take_snapshot)
        loop.call_later(SWEEP_INTERVAL_S, self._expire_requests)
        if self.plan.duration_s is not None:
            loop.call_later(self.plan.warmup_s + self.plan.duration_s + MAX_TIMER_EARLY_S, self.stop)

    def stop(self) -> None:
        """Stops sending new requests; `ended` is set as soon as all due requests are answered."""
        if not self.stopped:
            self.stopped = True
            self._take_snapshot()
        self._check_ended()

    def interrupt(self) -> None:
        """Ends the run at once. Requests in flight are counted as `unanswered` and are not in the log."""
        self.stop()
        if not self.ended.is_set():
            self.unanswered = self.in_flight
            self.ended.set()

    async def close(self) -> None:
        """Closes all connections."""
        self.interrupt()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.abort(NO_ANSWER)

    @abstractmethod
    def _on_idle(self, connection: Connection) -> None:
        """Called when a connection can send the next request."""

    @abstractmethod
    def _on_disconnect(self) -> None:
        """Called when a connection was closed, or could not be opened: a subclass may open another."""

    def _send(self, connection: Connection, start_s: float) -> None:
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        connection.send(next(self._requests), start_s)

    def on_answer(self, connection: Connection, answer: Answer) -> None:
        """Logs an answer."""
        code = outcome_code(answer, self.plan.check_inputs)
        if code != OK and self.first_error is None and connection.start_s >= self.measure_start_s:
            message = error_message(answer.body) if code != WRONG_ANSWER else ""
            self.first_error = AnsweredError(answer.status, code, message)
        self._finish(connection, code)
        if answer.status in REFUSALS and self._all_ended_in(code) and not self.ended.is_set():
            self.refusal = AnsweredError(answer.status, code, error_message(answer.body))
            self.interrupt()
        if answer.keep_alive:
            self._on_idle(connection)
        else:
            self._connections.discard(connection)
            self._on_disconnect()
        self._check_ended()

    def _all_ended_in(self, code: str) -> bool:
        """Whether several requests have ended, and all in this error."""
        return self.log.errors == len(self.log) >= MIN_REFUSALS and self.log.codes == [OK, code]

    def on_failure(self, connection: Connection, code: str) -> None:
        """Logs a request that gets no answer."""
        self._finish(connection, code)
        self.on_close(connection)

    def on_close(self, connection: Connection) -> None:
        """Removes a closed connection."""
        self._connections.discard(connection)
        if not self.ended.is_set():
            self._on_disconnect()
            self._check_ended()

    def _finish(self, connection: Connection, code: str) -> None:
        self.in_flight -= 1
        if not self.ended.is_set():
            self._log_request(connection.start_s, code, connection.sent_bytes, connection.received_bytes)

    def _log_request(self, start_s: float, code: str, sent_bytes: int, received_bytes: int) -> None:
        latency_s = time.monotonic() - start_s
        self.log.add(start_s - self.measure_start_s, latency_s, code, sent_bytes, received_bytes)

    def _check_ended(self) -> None:
        if self.stopped and self.in_flight == 0 and self._num_waiting() == 0:
            self.ended.set()

    @abstractmethod
    def _num_waiting(self) -> int:
        """Returns the number of due requests that wait for a connection."""

    def _take_snapshot(self) -> None:
        self.snapshots.append(UsageSnapshot(time.monotonic(), time.process_time(), len(self.log)))

    def _expire_requests(self) -> None:
        """Fails requests without an answer NO_ANSWER_GRACE_S after the time by which a gateway promises to answer."""
        if self.ended.is_set():
            return
        before_s = time.monotonic() - self.plan.late_after_s - NO_ANSWER_GRACE_S
        for connection in [each for each in self._connections if each.busy and each.start_s < before_s]:
            connection.abort(NO_ANSWER)
        self._expire_waiting(before_s)
        asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._expire_requests)

    @abstractmethod
    def _expire_waiting(self, before_s: float) -> None:
        """Fails the requests that have waited for a connection since before this time."""

    def _start_connecting(self) -> None:
        self._num_connecting += 1
        task = asyncio.create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        start_s = time.monotonic()
        try:
            connection = await self._connector.connect(self)
        except OSError:
            self._on_connect_failed(start_s)
            self._check_ended()
            await asyncio.sleep(RECONNECT_DELAY_S)
            connection = None
        finally:
            self._num_connecting -= 1
        if connection is not None:
            self._connections.add(connection)
            self._on_idle(connection)
        elif not self.ended.is_set():
            self._on_disconnect()

    @abstractmethod
    def _on_connect_failed(self, start_s: float) -> None:
        """Called when an attempt to connect that started at this time failed."""
