"""Renews the entries in flight, drops those that are gone, and takes over what other workers left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from gpuworker import metrics
from gpuworker.consumer.claimer import Claimer
from gpuworker.consumer.entry_intake import EntryIntake
from gpuworker.consumer.inflight import InFlightEntry
from gpuworker.consumer.worker_state import ShardState
from gpuworker.policy.retries import should_keep
from shared import consumer
from shared.connection import RedisConnection
from shared.consumer import ReclaimQuery
from shared.errors import RedisUnreachableError
from shared.keys import RELEASED
from shared.process.unexpected_replies import record_failing_call
from shared.redis_errors import GroupMissingError

log = structlog.get_logger()

MAX_RENEWAL = 1_024
"""Maximum entries of one renewal. Redis runs nothing else meanwhile, for about 5 µs each."""

SLOW_S = 0.5
"""A longer call indicates a stall, after which every worker needs time to renew what it holds."""


UNCOMMITTED_RENEWALS_S = 2.0
"""How long answers may fail to reach a Redis that answers renewals before the entries are left to other workers: their
connection may be lost for good, as where the name of Redis can no longer be resolved."""


class Reclaimer:
    """Renews every `renew_ms`, and reclaims several times within the idle bound.

    Args:
        shard: whose entries are renewed and reclaimed.
        connection: used by the reclaimer only.
        claimer: limits how much is taken over.
        intake: takes it.
        drop: called with the keys of entries that need not run any more.
    """

    def __init__(
        self,
        shard: ShardState,
        connection: RedisConnection,
        claimer: Claimer,
        intake: EntryIntake,
        drop: Callable[[list[str]], None],
    ) -> None:
        self._shard, self._worker_state = shard, shard.worker_state
        self._connection = connection
        self._claimer = claimer
        self._intake = intake
        self._drop = drop
        self._stalled_until = self._failed_at = 0.0

    async def run(self) -> None:
        """Renews and reclaims until cancelled."""
        renewal = self._worker_state.settings.renewal
        renew_s = renewal.interval_s
        reclaim_s = min(1.0, renewal.reclaim_idle_ms / 3000)
        next_reclaim = time.monotonic() + reclaim_s
        while True:
            await asyncio.sleep(renew_s)
            began = time.monotonic()
            try:
                if self._can_answer(began):
                    await self.renew()
                max_entries = self._claimer.reclaim_capacity()
                # A turn without room is not lost: what the only worker left as it died waits for this one's model.
                if max_entries > 0 and began >= max(next_reclaim, self._stalled_until):
                    next_reclaim = began + reclaim_s
                    await self._reclaim(max_entries)
            except GroupMissingError:
                await self._join()
            except RedisUnreachableError as error:
                self._failed_at = time.monotonic()
                record_failing_call("entries cannot be renewed", error)
                self._note_stall(renew_s)
            if time.monotonic() - began > SLOW_S:
                self._note_stall(renew_s)

    def _can_answer(self, now: float) -> bool:
        """Whether this worker is to keep its entries: others take over what is not renewed."""
        since = self._shard.uncommitted_since
        return since is None or now - max(since, self._failed_at) < UNCOMMITTED_RENEWALS_S

    async def _join(self) -> None:
        """Creates the group again: a claimer that blocks for an entry may notice seconds later that it is gone."""
        try:
            await consumer.join(self._connection, self._shard.keys)
        except RedisUnreachableError as error:
            log.debug("the group is still missing", reason=error.log_message)

    def _note_stall(self, renew_s: float) -> None:
        self._stalled_until = time.monotonic() + 2 * renew_s + SLOW_S

    async def renew(self) -> None:
        """Renews what is held; drops entries that this worker no longer owns and has not started or answered."""
        held = self._worker_state.in_flight.entries(self._shard.number)
        for start in range(0, len(held), MAX_RENEWAL):
            await self._renew(held[start : start + MAX_RENEWAL])

    async def _renew(self, held: Sequence[InFlightEntry]) -> None:
        entries, in_flight = [each.entry for each in held], self._worker_state.in_flight
        renewed = await consumer.renew(self._connection, self._shard.keys, self._worker_state.worker, entries)
        self._shard.clock.observe(renewed.now_ms)
        gone = [
            each.key
            for each, still in zip(held, renewed.owned, strict=True)
            if not should_keep(owned=still, started=in_flight.started_at(each) is not None, answered=each.answered)
        ]
        if gone:
            metrics.DROPPED.inc(len(gone))
            self._drop(gone)
            in_flight.remove(gone)
            if renewed.unowned_in_lane:
                # An entry that was delivered to this worker again meanwhile was mistaken for one in flight.
                await self._claimer.request_recovery()

    async def _reclaim(self, max_entries: int) -> None:
        worker_state = self._worker_state
        renewal = worker_state.settings.renewal
        search = ReclaimQuery(renewal.reclaim_idle_ms, max_entries=max_entries, revision=worker_state.revision)
        try:
            claimed = await consumer.reclaim(
                self._connection, self._shard.keys, worker_state.worker, self._shard.clock.now_ms(), search
            )
        except RedisUnreachableError:
            await self._claimer.request_recovery()
            raise
        if claimed is None:
            self._note_stall(renewal.interval_s)
            return
        self._shard.clock.observe(claimed.now_ms)
        if claimed.entries or claimed.malformed:
            silent = len(claimed.entries) - claimed.released
            metrics.RECLAIMED.labels(RELEASED).inc(claimed.released)
            metrics.RECLAIMED.labels(metrics.SILENT).inc(silent)
            log.info("entries taken over", n=len(claimed.entries), silent=silent)
            self._intake.accept((*claimed.entries, *claimed.malformed))
