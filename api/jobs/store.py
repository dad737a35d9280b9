"""The jobs of one queue: a gateway reads them, and waits for their end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from api.jobs.durability import Durability
from shared import jobs
from shared.errors import RedisUnreachableError
from shared.jobs import FINAL_STATUSES
from shared.process.tasks import cancel_and_wait

if TYPE_CHECKING:
    from shared.connection import RedisConnection
    from shared.jobs import Job
    from shared.queue_connections import QueueConnections

log = structlog.get_logger()

POLL_INTERVAL_S = 0.1
"""Interval of the polls for the end of jobs; one poll covers all jobs that clients wait for."""


class JobStore:
    """Reads jobs, ends those whose time is over, and wakes those who wait for the end of one.

    A wait holds no connection: one poll covers all waits.

    Attributes:
        keys: Redis keys of the queue.
        connection: for short commands.
        upload_connection: for uploads, which may take long.
        durability: waits until jobs are durable.
    """

    def __init__(self, connections: QueueConnections) -> None:
        self.keys = connections.keys
        self.connection: RedisConnection = connections.connection("jobs")
        self.upload_connection: RedisConnection = connections.connection("upload")
        self.durability = Durability(connections.connection("durable"), connections.keys)
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._poll_task: asyncio.Task[None] | None = None

    async def find(self, job_id: str) -> Job | None:
        """Returns a job, or None if it does not exist; ends it first if its time is over. Raises RedisUnreachableError.

        Workers end such jobs, but while none lives, a client would wait for ever.
        """
        job = await jobs.find(self.connection, self.keys, job_id)
        if job is None or job.ended or time.time() * 1000 < job.expires_ms:
            return job
        if await jobs.expire(self.connection, self.keys, job_id):
            log.warning("jobs expired", n=1)
        return await jobs.find(self.connection, self.keys, job_id)

    async def has_jobs(self) -> bool:
        """Whether any job has not ended, or has results that are kept. Raises RedisUnreachableError."""
        return bool(await jobs.latest(self.connection, self.keys, 1))

    async def wait_until_ended(self, job_id: str, timeout_s: float) -> None:
        """Waits until a job has ended or does not exist, for `timeout_s` seconds at most."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(future)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return
        finally:
            futures = self._waiting.get(job_id, set())
            futures.discard(future)
            if not futures:
                self._waiting.pop(job_id, None)

    async def stop(self) -> None:
        """Stops polling."""
        await self.durability.stop()
        if self._poll_task is not None:
            await cancel_and_wait([self._poll_task])

    async def _poll(self) -> None:
        while self._waiting:
            job_ids = list(self._waiting)
            with suppress(RedisUnreachableError):
                statuses = await jobs.statuses(self.connection, self.keys, job_ids)
                for job_id, status in zip(job_ids, statuses, strict=True):
                    if status in ("", *FINAL_STATUSES):
                        self._wake(job_id)
            await asyncio.sleep(POLL_INTERVAL_S)

    def _wake(self, job_id: str) -> None:
        for future in self._waiting.pop(job_id, ()):
            if not future.done():
                future.set_result(None)
