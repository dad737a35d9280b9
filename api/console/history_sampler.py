"""Samples what the queues of a gateway do, and encodes their history once for all viewers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import orjson

from api import metrics
from api.console.history import SAMPLE_S, QueueHistory
from api.served_queue import ServedQueue
from shared.activity import ActivitySummary, summarize
from shared.process.tasks import cancel_and_wait, run_forever


class HistorySampler:
    """Adds a sample to the history each SAMPLE_S, from what the monitors of the queues have read.

    Args:
        names: returns the queues.
        activity: returns what the workers of a queue did in the last seconds; None if no Redis of it answers.
        clock: monotonic, s.
    """

    def __init__(
        self,
        names: Callable[[], Sequence[str]],
        activity: Callable[[str], ActivitySummary | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names, self._activity, self._clock = names, activity, clock
        self._history = QueueHistory()
        self._queues: Sequence[str] = ()
        self._sampled_at = clock()
        self._encoded = b""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts to sample."""
        self._tasks.append(asyncio.create_task(run_forever(self._run), name="history"))

    async def stop(self) -> None:
        """Stops that."""
        await cancel_and_wait(self._tasks)

    async def _run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Adds a sample."""
        activities: dict[str, ActivitySummary | None] = {}
        for name in self._names():
            activities[name] = self._activity(name)
            await asyncio.sleep(0)  # the sum over many workers takes some ms: in between, requests are answered
        self._queues, self._sampled_at, self._encoded = list(activities), self._clock(), b""
        self._history.add(self._sampled_at, activities, metrics.error_totals())

    def as_json(self) -> bytes:
        """Returns the history as JSON, with the age of its last sample."""
        if not self._encoded:
            self._encoded = orjson.dumps(self._history.as_dict(self._queues))[1:]
        age_s = round(self._clock() - self._sampled_at, 3)
        return f'{{"age_s": {age_s}, '.encode() + self._encoded


def activity_of(queue: ServedQueue | None) -> ActivitySummary | None:
    """Returns what the workers of a queue did in the last seconds, as the shards that answer have it; None: none do."""
    monitors = [] if queue is None else [each.monitor for each in queue.shards]
    answering = [each for each in monitors if each.stats is not None and not each.is_down]
    if not answering:
        return None
    return summarize([worker.activity for monitor in answering for worker in monitor.workers()])
