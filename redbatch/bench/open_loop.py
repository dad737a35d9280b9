"""The closed and the open loop: who sends when."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.load_generator import CONNECT_FAILED, NEVER_SENT, LoadGenerator, LoadPlan
from redbatch.bench.precise_timer import PreciseTimer


class OpenLoop(LoadGenerator):
    """Sends each request when it is due, over any free connection, and opens more while there are too few.

    Args:
        plan: as for any load; `connections` is the most there may be.
        dialer: opens them.
        requests: what is sent.
        schedule: when the requests are due, in seconds since the load begins.
    """

    def __init__(self, plan: LoadPlan, dialer: Connector, requests: Sequence[bytes], schedule: Iterator[float]) -> None:
        super().__init__(plan, dialer, requests)
        self.had_to_wait = 0  # requests that found all connections taken, and no more allowed
        self.most_behind_s = 0.0  # the longest time by which this process itself came too late
        self._schedule = schedule
        self._due: deque[float] = deque()
        self._idle: list[Connection] = []
        self._alarm = PreciseTimer(self._ring)
        self._next_s: float | None = None
        self._origin_s = 0.0

    def begin(self) -> None:
        """The first request is due after the first gap."""
        super().begin()
        self._origin_s = self.start_s - self.plan.warmup_s
        self._idle = list(self._connections)
        self._advance()
        self._ring()

    def stop(self) -> None:
        """Sends what was due until now too: where this process was held up at the end, it would vanish otherwise."""
        if not self.stopped:
            self._catch_up()
        super().stop()

    def interrupt(self) -> None:
        """Ends the run at once. What was due and still waits has had its time, and is an error."""
        self.stop()
        while self._due:
            self._add(self._due.popleft(), NEVER_SENT, 0, 0)
        super().interrupt()

    async def close(self) -> None:
        """Sends no more."""
        self._alarm.close()
        await super().close()

    def _advance(self) -> None:
        at_s = next(self._schedule, None)
        self._next_s = None if at_s is None else self._origin_s + at_s

    def _ring(self) -> None:
        """Sends what is due, and sets the alarm to what comes next."""
        if self.stopped:
            return
        self._catch_up()
        if self._next_s is not None:
            self._alarm.set(self._next_s)
        elif self.plan.duration_s is None:
            self.stop()

    def _catch_up(self) -> None:
        now_s = time.monotonic()
        while self._next_s is not None and self._next_s <= now_s:
            self.most_behind_s = max(self.most_behind_s, now_s - self._next_s)
            self._arrive(self._next_s)
            self._advance()

    def _arrive(self, at_s: float) -> None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.gone:
                self._send(connection, at_s)
                return
        self._due.append(at_s)
        if not self._dial_for_one():
            self.had_to_wait += 1

    def _dial_for_one(self) -> bool:
        if len(self._connections) + self._dialing >= self.plan.connections:
            return False
        self._dial()
        return True

    def _free(self, connection: Connection) -> None:
        if self._due:
            self._send(connection, self._due.popleft())
        else:
            self._idle.append(connection)

    def _missing(self) -> None:
        if len(self._due) > self._dialing:
            self._dial_for_one()

    def _unreachable(self, _began_s: float) -> None:
        """All that waits has failed when there is no connection at all; else just the one that this one was for."""
        number = 1 if self._connections else len(self._due)
        for _ in range(min(number, len(self._due))):
            self._add(self._due.popleft(), CONNECT_FAILED, 0, 0)

    def _waiting(self) -> int:
        return len(self._due)

    def _give_up_waiting(self, before_s: float) -> None:
        while self._due and self._due[0] < before_s:
            self._add(self._due.popleft(), NEVER_SENT, 0, 0)
        self._look_for_the_end()
