"""What operators do with dead letters and jobs over the console, as with `redbatch dead` and `jobs`.

Requeues wait for answers in blocking reads, so they have separate connections: nothing else waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from shared import dead_letters, job_cancel, jobs
from shared.dead_letter_ids import split_letter_id
from shared.dead_letter_requeue import GONE, RequeueResult, requeue_and_wait
from shared.dead_letters import DeadLetter
from shared.errors import (
    InvalidRequestError,
    JobNotFoundError,
    NotFoundError,
    OverloadedError,
    RedisUnreachableError,
)
from shared.job_cancel import CancelResult
from shared.job_ids import split_public_id
from shared.jobs import Job, Status
from shared.keys import Keys
from shared.shard_connections import ShardConnection

REQUEUE_TIMEOUT_S = 30.0
"""Maximum wait for the answer to a requeued letter."""

MAX_REQUEUES = 8
"""Requeues of a shard that run, or wait for those before them: one runs at a time."""

DELETE_RESULTS = "delete_results"
NO_SUCH_LETTER = "There is no such dead letter in this queue: it may have been requeued or deleted."
NO_SUCH_JOB = "There is no such job: check its id. A job is deleted some time after its end (job_ttl_s)."


class CancelledJob(NamedTuple):
    """A job as it was before its cancellation, but with the status of now; and the outcome."""

    job: Job
    result: CancelResult


class QueueActions:
    """Shows, requeues and deletes dead letters, and cancels jobs. All raise RedisUnreachableError.

    Args:
        shards: connections to the Redis of each shard, for short commands.
        waiting: the same, for requeues.
    """

    def __init__(self, shards: Sequence[ShardConnection], waiting: Sequence[ShardConnection]) -> None:
        self._shards, self._waiting = shards, waiting
        self._locks = [asyncio.Lock() for _ in waiting]
        self._num_requeues = [0 for _ in waiting]

    async def find_letter(self, queue: str, public_id: str) -> DeadLetter:
        """Returns a dead letter. Raises NotFoundError."""
        shard, letter_id = await self._shard_of_letter(self._shards, public_id)
        letter = await dead_letters.find(shard.connection, shard.connection.keys_of(queue), letter_id)
        if letter is None:
            raise NotFoundError(NO_SUCH_LETTER)
        return replace(letter, letter_id=public_id)

    async def purge(self, queue: str, public_id: str) -> None:
        """Deletes a dead letter. Raises NotFoundError."""
        shard, letter_id = await self._shard_of_letter(self._shards, public_id)
        if not await dead_letters.purge(shard.connection, shard.connection.keys_of(queue), [letter_id]):
            raise NotFoundError(NO_SUCH_LETTER)

    async def requeue(self, queue: str, public_id: str) -> RequeueResult:
        """Runs a dead letter again; waits for its answer.

        Raises:
            NotFoundError: there is none.
            OverloadedError: MAX_REQUEUES are under way.
        """
        shard, letter_id = await self._shard_of_letter(self._waiting, public_id, check=False)
        number = shard.number
        if self._num_requeues[number] >= MAX_REQUEUES:
            message = f"{MAX_REQUEUES} dead letters are being requeued: wait until these are answered, then try again."
            raise OverloadedError(message, retry_after_s=1.0)
        self._num_requeues[number] += 1
        try:
            async with self._locks[number]:
                await shard.connection.check_home()
                keys = shard.connection.keys_of(queue)
                result = await requeue_and_wait(shard.connection, keys, letter_id, REQUEUE_TIMEOUT_S)
        finally:
            self._num_requeues[number] -= 1
        if result.code == GONE:
            raise NotFoundError(NO_SUCH_LETTER)
        return result

    async def cancel(self, public_id: str, *, delete_results: bool) -> CancelledJob:
        """Cancels a job.

        Raises:
            JobNotFoundError: there is none.
            InvalidRequestError: it has ended, so its results would be deleted, and `delete_results` is false.
        """
        shard, keys, job_id = self._locate_job(public_id)
        await shard.connection.check_home()
        job = await jobs.find(shard.connection, keys, job_id)
        if job is None:
            raise JobNotFoundError(NO_SUCH_JOB)
        # The script decides whether the job has ended: it may end after it was found.
        result = await job_cancel.cancel_job(shard.connection, keys, job, public_id, if_open=not delete_results)
        if not result.previous:
            raise JobNotFoundError(NO_SUCH_JOB)
        had_results = job_cancel.has_results(result.previous)
        if had_results and not result.changed:
            message = f"This job is {result.previous}: to delete its results, send {DELETE_RESULTS}=true."
            raise InvalidRequestError(message, param=DELETE_RESULTS)
        status: Status = "deleted" if had_results else "cancelled"
        return CancelledJob(replace(job, status=status) if result.changed else job, result)

    async def reread_job(self, public_id: str, known: Job) -> Job:
        """Returns a job as it is now, or as `known` if it is gone or Redis does not answer."""
        shard, keys, job_id = self._locate_job(public_id)
        try:
            return await jobs.find(shard.connection, keys, job_id) or known
        except RedisUnreachableError:
            return known

    def _locate_job(self, public_id: str) -> tuple[ShardConnection, Keys, str]:
        """Returns the shard of a job, its keys, and the id of the job there. Raises JobNotFoundError."""
        queue, number, job_id = split_public_id(public_id)
        if number >= len(self._shards):
            raise JobNotFoundError(f"This job is on shard {number} of the queue, which this gateway does not have.")
        shard = self._shards[number]
        return shard, shard.connection.keys_of(queue), job_id

    @staticmethod
    async def _shard_of_letter(
        shards: Sequence[ShardConnection], public_id: str, *, check: bool = True
    ) -> tuple[ShardConnection, str]:
        number, letter_id = split_letter_id(public_id)
        if number >= len(shards):
            raise NotFoundError(NO_SUCH_LETTER)
        if check:
            await shards[number].connection.check_home()
        return shards[number], letter_id
