"""Brings the inputs of jobs into the lanes, as fast as the fleet gets them done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import Context
from shared.process.tasks import wait_for_event
from shared import jobs
from shared.errors import RedisUnreachable
from shared.jobs import Window, window

log = structlog.get_logger()

EVERY_S = 1.0
"""How often somebody looks whether there is anything to feed, or to look after, while nothing of jobs runs here."""


class Feeder:
    """Feeds the lanes whenever this worker has answered something of a job. All workers do: each call is for the fleet.

    Args:
        context: the worker.
        batch_tokens: says how many tokens a batch may have.
    """

    def __init__(self, context: Context, batch_tokens: Callable[[], int]) -> None:
        self._context = context
        self._batch_tokens = batch_tokens

    async def run(self) -> None:
        """Works until cancelled."""
        context = self._context
        while True:
            await wait_for_event(context.jobs_moved, EVERY_S)
            context.jobs_moved.clear()
            try:
                fed = await jobs.feed(context.control, context.keys, self._window())
            except RedisUnreachable as error:
                log.debug("jobs are not fed", reason=error.message)
                await asyncio.sleep(EVERY_S)
                continue
            except Exception:  # what somebody did to a job by hand must not end a worker
                log.exception("jobs cannot be fed")
                await asyncio.sleep(EVERY_S)
                continue
            metrics.JOB_ENTRIES.labels("fed").inc(fed.entries)
            if fed.again:
                metrics.JOB_ENTRIES.labels("added again").inc(fed.again)
                log.warning("entries of jobs had gone, and are added again", n=fed.again)
            if fed.expired:
                log.warning("jobs expired", n=fed.expired)

    def _window(self) -> Window:
        context = self._context
        return window(context.tokens_per_s * context.workers, self._batch_tokens(), context.workers)
