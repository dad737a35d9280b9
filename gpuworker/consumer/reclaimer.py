"""Keeps what is held, lets go of what is gone, and takes over what others left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from gpuworker import metrics
from gpuworker.consumer.claimer import Claimer
from gpuworker.consumer.worker_state import Context
from gpuworker.consumer.inflight import key_of
from gpuworker.policy.retries import keeps
from shared import consumer
from shared.consumer import Abandoned
from shared.errors import RedisUnreachable
from shared.keys import RELEASED
from shared.connection import GroupMissing, Link

log = structlog.get_logger()

SLOW_S = 0.5
"""A call that took longer speaks of a stall, after which every worker needs time to renew what it holds."""


class Keeper:
    """Renews every `renew_ms`, and reclaims a few times within the idle bound.

    Args:
        context: the worker.
        link: a connection of its own.
        claimer: says what may be taken over, and takes it.
        drop: told the keys of entries that need not run any more.
    """

    def __init__(self, context: Context, link: Link, claimer: Claimer, drop: Callable[[list[str]], None]) -> None:
        self._context = context
        self._link = link
        self._claimer = claimer
        self._drop = drop
        self._stalled_until = 0.0

    async def run(self) -> None:
        """Works until cancelled."""
        settings = self._context.settings
        renew_s = settings.renew_ms / 1000
        reclaim_s = min(1.0, settings.reclaim_idle_ms / 3000)
        next_reclaim = time.monotonic() + reclaim_s
        while True:
            await asyncio.sleep(renew_s)
            began = time.monotonic()
            try:
                await self.renew()
                if began >= max(next_reclaim, self._stalled_until):
                    next_reclaim = began + reclaim_s
                    await self._reclaim()
            except GroupMissing:
                await self._join()
            except RedisUnreachable:
                self._stalled(renew_s)
            if time.monotonic() - began > SLOW_S:
                self._stalled(renew_s)

    async def _join(self) -> None:
        """Makes the group again: a claimer that blocks for an entry may notice seconds later that it is gone."""
        try:
            await consumer.join(self._link, self._context.keys)
        except RedisUnreachable as error:
            log.debug("the group is still missing", reason=error.message)

    def _stalled(self, renew_s: float) -> None:
        self._stalled_until = time.monotonic() + 2 * renew_s + SLOW_S

    async def renew(self) -> None:
        """Renews what is held; drops what is not this worker's any more and has no answer yet."""
        held = self._context.hands.all()
        if not held:
            return
        entries = [each.entry for each in held]
        renewed = await consumer.renew(self._link, self._context.keys, self._context.worker, entries)
        self._context.clock.saw(renewed.now_ms)
        gone = [
            key_of(each.entry)
            for each, still in zip(held, renewed.owned, strict=True)
            if not keeps(owned=still, begun=each.began is not None, answered=each.answered)
        ]
        if gone:
            metrics.DROPPED.inc(len(gone))
            self._drop(gone)
            self._context.hands.release(gone)
            if renewed.elsewhere:  # one that was delivered again to this worker meanwhile was taken for one in hand
                await self._claimer.look_again()

    async def _reclaim(self) -> None:
        context = self._context
        most = self._claimer.room()
        if most <= 0:
            return
        search = Abandoned(context.settings.reclaim_idle_ms, most=most, revision=context.revision)
        try:
            claimed = await consumer.reclaim(self._link, context.keys, context.worker, context.clock.now_ms(), search)
        except RedisUnreachable:
            await self._claimer.look_again()
            raise
        if claimed is None:
            self._stalled(context.settings.renew_ms / 1000)
            return
        context.clock.saw(claimed.now_ms)
        if claimed.entries or claimed.malformed:
            silent = len(claimed.entries) - claimed.released
            metrics.RECLAIMED.labels(RELEASED).inc(claimed.released)
            metrics.RECLAIMED.labels(metrics.SILENT).inc(silent)
            log.info("entries taken over", n=len(claimed.entries), silent=silent)
            self._claimer.accept(claimed)
