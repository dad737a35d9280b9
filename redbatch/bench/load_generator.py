"""The load itself: connections, who sends when, and the record of what came of it.

Closed loop: each client sends its next request when it has the answer to the last, so a slow server slows its own load.
Open loop: requests are due at given times, whatever the server does. Each counts from the time it was due: one that
waited here, behind slow answers, has waited (without that, a stall of the server would hide itself).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

from redbatch.bench.answers import Answer, outcome_code
from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.request_log import RequestLog

NO_ANSWER = "no_answer"
NEVER_SENT = "never_sent"
CONNECT_FAILED = "connect_failed"
NO_ANSWER_GRACE_S = 5.0
MAX_TIMER_EARLY_S = 0.002
"""A loop's timer, which knows whole milliseconds, may ring so much too early: what is due last would be left out."""

SWEEP_INTERVAL_S = 0.25
RECONNECT_DELAY_S = 0.1


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How long, how many, and what counts as too long. `duration_s` or `requests`, not both."""

    warmup_s: float
    duration_s: float | None
    requests: int | None
    connections: int
    late_after_s: float
    check_inputs: int | None  # look into good answers, for so many vectors


class UsageSnapshot(NamedTuple):
    """How far this process was at a time: its CPU seconds, and the requests that were finished."""

    at_s: float
    cpu_s: float
    finished: int


class LoadGenerator(ABC):
    """What both loops have in common. `start_s` is when the measuring begins, on the clock of `time.monotonic()`."""

    def __init__(self, plan: LoadPlan, dialer: Connector, requests: Sequence[bytes]) -> None:
        self.plan = plan
        self.record = RequestLog()
        self.start_s = 0.0
        self.in_flight = 0
        self.most_in_flight = 0
        self.unanswered = 0  # in flight when the run was interrupted
        self.stopped = False
        self.ended = asyncio.Event()
        self.marks: list[UsageSnapshot] = []  # when the measuring began, and when it ended
        self._connections: set[Connection] = set()
        self._dialer = dialer
        self._requests = cycle(requests)
        self._dialing = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, number: int) -> None:
        """Opens the connections that the run begins with. Raises OSError when the server cannot be reached."""
        await self._dialer.open_all(self, number, self._connections)

    def begin(self) -> None:
        """Begins to send."""
        loop = asyncio.get_running_loop()
        self.start_s = time.monotonic() + self.plan.warmup_s
        loop.call_later(self.plan.warmup_s, self._mark)
        loop.call_later(SWEEP_INTERVAL_S, self._sweep)
        if self.plan.duration_s is not None:
            loop.call_later(self.plan.warmup_s + self.plan.duration_s + MAX_TIMER_EARLY_S, self.stop)

    def stop(self) -> None:
        """Sends nothing new; `ended` is set as soon as all that was due is answered."""
        if not self.stopped:
            self.stopped = True
            self._mark()
        self._look_for_the_end()

    def interrupt(self) -> None:
        """Ends the run at once. What is in flight is counted and has no other part in the result."""
        self.stop()
        if not self.ended.is_set():
            self.unanswered = self.in_flight
            self.ended.set()

    async def close(self) -> None:
        """Drops all connections."""
        self.interrupt()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.give_up(NO_ANSWER)

    @abstractmethod
    def _free(self, connection: Connection) -> None:
        """A connection may send the next request."""

    @abstractmethod
    def _missing(self) -> None:
        """A connection is gone."""

    def _send(self, connection: Connection, began_s: float) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        connection.send(next(self._requests), began_s)

    def answered(self, connection: Connection, answer: Answer) -> None:
        """Records an answer."""
        self._finish(connection, outcome_code(answer, self.plan.check_inputs))
        if answer.keep_alive:
            self._free(connection)
        else:
            self._connections.discard(connection)
            self._missing()
        self._look_for_the_end()

    def failed(self, connection: Connection, code: str) -> None:
        """Records a request without an answer."""
        self._finish(connection, code)
        self.closed(connection)

    def closed(self, connection: Connection) -> None:
        """Forgets a connection that is gone."""
        self._connections.discard(connection)
        if not self.ended.is_set():
            self._missing()
            self._look_for_the_end()

    def _finish(self, connection: Connection, code: str) -> None:
        self.in_flight -= 1
        if not self.ended.is_set():
            self._add(connection.began_s, code, connection.sent_bytes, connection.received_bytes)

    def _add(self, began_s: float, code: str, sent_bytes: int, received_bytes: int) -> None:
        took_s = time.monotonic() - began_s
        self.record.add(began_s - self.start_s, took_s, code, sent_bytes, received_bytes)

    def _look_for_the_end(self) -> None:
        if self.stopped and self.in_flight == 0 and self._waiting() == 0:
            self.ended.set()

    @abstractmethod
    def _waiting(self) -> int:
        """How many requests are due and wait for a connection."""

    def _mark(self) -> None:
        self.marks.append(UsageSnapshot(time.monotonic(), time.process_time(), len(self.record)))

    def _sweep(self) -> None:
        """Gives up on answers that do not come: long past the time in which a gateway answers by its promise."""
        if self.ended.is_set():
            return
        before_s = time.monotonic() - self.plan.late_after_s - NO_ANSWER_GRACE_S
        for connection in [each for each in self._connections if each.busy and each.began_s < before_s]:
            connection.give_up(NO_ANSWER)
        self._give_up_waiting(before_s)
        asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep)

    @abstractmethod
    def _give_up_waiting(self, before_s: float) -> None:
        """Gives up on requests that wait for a connection since before this time."""

    def _dial(self) -> None:
        self._dialing += 1
        task = asyncio.create_task(self._dialed())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dialed(self) -> None:
        began_s = time.monotonic()
        try:
            connection = await self._dialer.open(self)
        except OSError:
            self._unreachable(began_s)
            self._look_for_the_end()
            await asyncio.sleep(RECONNECT_DELAY_S)
            connection = None
        finally:
            self._dialing -= 1
        if connection is not None:
            self._connections.add(connection)
            self._free(connection)
        elif not self.ended.is_set():
            self._missing()

    @abstractmethod
    def _unreachable(self, began_s: float) -> None:
        """A connection that was tried to open at this time could not be."""
