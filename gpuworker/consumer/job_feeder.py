"""Moves inputs of jobs into the lanes, at the rate at which the fleet processes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from gpuworker import metrics
from gpuworker.consumer.worker_state import WorkerState
from shared import jobs
from shared.errors import RedisUnreachableError
from shared.feed_window import FeedWindow, feed_window
from shared.process.tasks import wait_for_event
from shared.process.unexpected_replies import record_failing_call

log = structlog.get_logger()

INTERVAL_S = 1.0
"""How often jobs are fed and maintained while this worker answers no entries of jobs."""


class JobFeeder:
    """Feeds the lanes whenever this worker has answered entries of a job. All workers do, each for the whole fleet.

    Args:
        worker_state: of the worker.
        batch_tokens: returns the maximum tokens of a batch.
    """

    def __init__(self, worker_state: WorkerState, batch_tokens: Callable[[], int]) -> None:
        self._worker_state = worker_state
        self._batch_tokens = batch_tokens

    async def run(self) -> None:
        """Feeds until cancelled."""
        worker_state = self._worker_state
        while True:
            await wait_for_event(worker_state.job_entries_answered, INTERVAL_S)
            worker_state.job_entries_answered.clear()
            try:
                result = await jobs.feed(worker_state.control, worker_state.keys, self._window())
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
        worker_state = self._worker_state
        return feed_window(worker_state.tokens_per_s * worker_state.workers, self._batch_tokens(), worker_state.workers)
