"""Writes down which entries the engine runs, so that a reclaim can count the attempt if this worker dies in it."""

from __future__ import annotations

import asyncio

import structlog

from gpuworker.consumer.worker_state import Context
from gpuworker.consumer.inflight import key_of
from shared import consumer
from shared.errors import RedisUnreachable
from shared.connection import Link

log = structlog.get_logger()

AFTER_S = 0.01
"""A batch that is done sooner is not written down: it would cost a command each, and nothing dies so fast for long."""

RETRY_PAUSE_S = 0.2


class Begun:
    """Keeps the begun entries in Redis as they are in hand."""

    def __init__(self, context: Context, link: Link) -> None:
        self._context = context
        self._link = link
        self._written: set[str] = set()
        self._stale = True  # a worker of this name may have died before
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Entries have begun, or are no longer."""
        self._changed.set()

    def interrupted(self) -> None:
        """The engine died, and the attempts are counted: what was written down must not be counted again."""
        self._stale = True
        self._changed.set()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(AFTER_S)
            self._changed.clear()
            try:
                await self._write()
            except RedisUnreachable as error:
                log.debug("begun entries are not written", reason=error.message)
                self._changed.set()
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _write(self) -> None:
        running = self._context.hands.running()
        names = {key_of(entry) for entry in running}
        ended = any(name in self._context.hands for name in self._written - names)
        if self._stale or ended or names - self._written:
            await consumer.mark_begun(self._link, self._context.keys, self._context.worker, running)
            self._written, self._stale = names, False
