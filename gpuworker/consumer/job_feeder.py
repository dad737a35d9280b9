"""Moves inputs of jobs into the lanes, at the rate at which the fleet processes them."""

from __future__ import annotations

import asyncio

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import ShardState
from shared import jobs
from shared.errors import RedisUnreachableError
from shared.feed_window import FeedWindow, feed_window
from shared.process.tasks import wait_for_event
from shared.process.unexpected_replies import record_failing_call

log = structlog.get_logger()

INTERVAL_S = 1.0
"""How often jobs are fed and maintained while this worker answers no entries of jobs."""


class JobFeeder:
    """Feeds the lanes of a shard whenever this worker has answered entries of its jobs.

    All workers do, each for the whole fleet.
    """

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard

    async def run(self) -> None:
        """Feeds until cancelled."""
        shard = self._shard
        while True:
            await wait_for_event(shard.job_entries_answered, INTERVAL_S)
            shard.job_entries_answered.clear()
            try:
                result = await jobs.feed(shard.control, shard.keys, self._window())
            except RedisUnreachableError as error:
                log.debug("jobs are not fed", reason=error.log_message)
                record_failing_call("jobs are not fed", error)
                await asyncio.sleep(INTERVAL_S)
                continue
            except Exception:  # a job that was changed by hand must not end a worker
                log.exception("jobs cannot be fed")
                await asyncio.sleep(INTERVAL_S)
                continue
            metrics.JOB_ENTRIES.labels("fed").inc(result.entries)
            if result.restored:
                metrics.JOB_ENTRIES.labels("added again").inc(result.restored)
                log.warning("entries of jobs were missing and were added again", n=result.restored)
            if result.expired:
                log.warning("jobs expired", n=result.expired)

    def _window(self) -> FeedWindow:
        worker_state, workers = self._shard.worker_state, self._shard.workers
        tokens_per_s = worker_state.tokens_per_s * self._shard.rate_share
        return feed_window(tokens_per_s * workers, worker_state.batch_tokens, workers)
