"""Adds what a process has counted to Redis, every few seconds and at its end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import structlog

from shared import usage
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.usage import UsageBatch
from shared.usage_counts import TenantLabels, Usage, UsageCounts

log = structlog.get_logger()

FLUSH_INTERVAL_S = 2.0
"""A process that is killed loses what it has counted in this time."""

FLUSH_TIMEOUT_S = 1.0
"""At the end of the process."""

MERGE_S = 900.0
"""While Redis is away, what is counted within this time goes into one call, so that the hour stays right."""

MAX_BATCHES = 8
"""Maximum calls that wait for Redis; after that, all that is counted goes into the last one."""

OnRow = Callable[[tuple[str, str], Usage], None]
"""Counts a row in metrics, given its labels: queue and tenant."""


class _Batch:
    """The rows of a call, since when they are counted (monotonic, s), and whether Redis may have them already."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts = UsageCounts()
        self.since = time.monotonic()
        self.was_sent = False

    def next_call(self) -> UsageBatch:
        """Returns the call. What it adds stays the same from now on, as it may be repeated."""
        self.was_sent = True
        return UsageBatch(self.number, int(1000 * (time.monotonic() - self.since)), self.counts.rows())


class UsageFlusher:
    """Adds counts to Redis. A call that fails is repeated: its number keeps Redis from adding it twice.

    Args:
        connection: returns the connection to the Redis that has the rows of all queues.
        process: a name that no other process has, nor an earlier run of this one.
        counts: what the process counts in.
        on_row: called with each row before it is sent, once.
        on_error: called with each error of Redis.
    """

    def __init__(
        self,
        connection: Callable[[], RedisConnection],
        process: str,
        counts: UsageCounts,
        on_row: OnRow,
        on_error: Callable[[RedisUnreachableError], None],
    ) -> None:
        self._connection, self._process, self._counts = connection, process, counts
        self._labels, self._on_row, self._on_error = TenantLabels(), on_row, on_error
        self._batches: deque[_Batch] = deque()
        self._last_number = 0

    async def run(self) -> None:
        """Flushes until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            await self.flush()

    async def flush(self) -> bool:
        """Adds all that is counted; returns whether that has succeeded."""
        self._collect()
        while self._batches:
            batch = self._batches[0]
            try:
                await usage.add(self._connection(), self._process, batch.next_call())
            except RedisUnreachableError as error:
                self._on_error(error)
                return False
            self._batches.popleft()
        return True

    async def stop(self) -> None:
        """Adds all that is counted; gives up after FLUSH_TIMEOUT_S."""
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self.flush()
        except TimeoutError:
            pass
        if lost := sum(len(each.counts) for each in self._batches):
            log.warning("usage of tenants is lost: Redis does not answer", rows=lost)

    def _collect(self) -> None:
        rows = self._counts.take()
        if not rows:
            return
        for key, row in rows.items():
            self._on_row((key.queue, self._labels.label_of(key.tenant)), row)
        last = self._batches[-1] if self._batches else None
        is_open = last is not None and not last.was_sent
        if last is None or not (is_open and (self._is_young(last) or len(self._batches) >= MAX_BATCHES)):
            self._last_number += 1
            last = _Batch(self._last_number)
            self._batches.append(last)
        last.counts.merge(rows)

    def _is_young(self, batch: _Batch) -> bool:
        return time.monotonic() - batch.since < MERGE_S
