"""The jobs of one queue, as a gateway sees them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from api.jobs.durability import Durability
from shared.process.tasks import end
from shared import jobs
from shared.errors import RedisUnreachable
from shared.jobs import ENDED

if TYPE_CHECKING:
    from shared.jobs import Job
    from shared.connection import Link, Queue

EVERY_S = 0.1
"""How often it is asked whether jobs have ended for which somebody waits: once for all of them."""


class Desk:
    """Reads jobs, and tells who waits for one that it has ended.

    Whoever waits holds no connection: all of them are one question.

    Attributes:
        reading: a connection for what is short.
        writing: another, for uploads, which may take long.
        durability: waits until they are durable.
    """

    def __init__(self, queue: Queue) -> None:
        self.keys = queue.keys
        self.reading: Link = queue.link("jobs")
        self.writing: Link = queue.link("upload")
        self.durability = Durability(queue.link("durable"), queue.keys)
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def find(self, job_id: str) -> Job | None:
        """Returns a job; None if there is none. Raises RedisUnreachable."""
        return await jobs.find(self.reading, self.keys, job_id)

    async def has_jobs(self) -> bool:
        """Whether there are jobs that have not ended, or whose results are kept. Raises RedisUnreachable."""
        return bool(await jobs.latest(self.reading, self.keys, 1))

    async def ended(self, job_id: str, timeout_s: float) -> None:
        """Returns when a job has ended or is gone, or when the time is over."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(told)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(timeout_s):
                await told
        except TimeoutError:
            return
        finally:
            waiting = self._waiting.get(job_id, set())
            waiting.discard(told)
            if not waiting:
                self._waiting.pop(job_id, None)

    async def stop(self) -> None:
        """Asks no more."""
        await self.durability.stop()
        if self._asking is not None:
            await end([self._asking])

    async def _ask(self) -> None:
        while self._waiting:
            asked = list(self._waiting)
            with suppress(RedisUnreachable):
                for job_id, status in zip(asked, await jobs.statuses(self.reading, self.keys, asked), strict=True):
                    if status in ("", *ENDED):
                        self._tell(job_id)
            await asyncio.sleep(EVERY_S)

    def _tell(self, job_id: str) -> None:
        for told in self._waiting.pop(job_id, ()):
            if not told.done():
                told.set_result(None)
