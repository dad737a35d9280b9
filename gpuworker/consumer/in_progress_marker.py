"""Records in Redis which entries the engine runs, so that a reclaim can count the attempt if this worker dies."""

from __future__ import annotations

import asyncio
import time

import structlog

from gpuworker.consumer.worker_state import ShardState
from shared import consumer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.process.unexpected_replies import record_failing_call

log = structlog.get_logger()

MARK_DELAY_S = 0.01
"""A batch that ends sooner is not recorded: each would cost a command, and no engine dies this fast for long."""

SCANNED_AT_ONCE = 256
"""With each further number of entries like this, the pause between two looks is longer: they take at most 1 % of the
time."""

RETRY_PAUSE_S = 0.2


class InProgressMarker:
    """Keeps the record in the Redis of a shard equal to the entries of it that run in the engine.

    While none is held it does nothing: a timer for each entry would wake a worker with few requests once more for each.
    """

    def __init__(self, shard: ShardState, connection: RedisConnection) -> None:
        self._shard, self._worker_state = shard, shard.worker_state
        self._connection = connection
        self._marked: set[str] = set()
        self._stale = True  # a worker of this name may have died before
        self._timer: asyncio.TimerHandle | None = None
        self._due = asyncio.Event()
        self._due.set()  # entries may be held already
        self._worker_state.in_flight.watch(shard.number, self._start_timer, self._stop_timer)

    def reset(self) -> None:
        """Requests that the record is written again: the engine died, and its attempts must not be counted twice."""
        self._stale = True
        self._due.set()

    def _start_timer(self) -> None:
        self._stop_timer()  # of an entry that came while it recorded others, or from before a reset
        delay_s = MARK_DELAY_S * (1 + len(self._worker_state.in_flight) // SCANNED_AT_ONCE)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._due.set)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def run(self) -> None:
        """Records what runs, until cancelled; looks for it while entries are held."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._write()
            except RedisUnreachableError as error:
                log.debug("what runs is not recorded", reason=error.log_message)
                record_failing_call("what runs is not recorded", error)
                await asyncio.sleep(RETRY_PAUSE_S)
            if self._worker_state.in_flight.num_of(self._shard.number):
                self._start_timer()

    async def _write(self) -> None:
        began = time.monotonic() - MARK_DELAY_S
        running = [
            each for each, started_at in self._worker_state.in_flight.running(self._shard.number) if started_at <= began
        ]
        keys = {each.key for each in running}
        ended = any(key in self._worker_state.in_flight for key in self._marked - keys)
        # With nothing to record, what this worker's former life recorded must stay until its entries are recovered.
        is_stale = self._stale and (keys or self._marked)
        if is_stale or ended or keys - self._marked:
            entries = [each.entry for each in running]
            await consumer.mark_begun(self._connection, self._shard.keys, self._worker_state.worker, entries)
            self._marked, self._stale = keys, False
