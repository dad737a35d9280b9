"""Cancels a job and says what became of it: for `redbatch jobs` and for the console of a gateway."""

from __future__ import annotations

from typing import NamedTuple

from shared import jobs
from shared.connection import RedisConnection
from shared.jobs import FINAL_STATUSES, STATUSES_WITHOUT_RESULTS, Job
from shared.keys import Keys


class CancelResult(NamedTuple):
    """Outcome of a cancellation: whether anything changed, and what did, in words."""

    changed: bool
    outcome: str


def has_results(job: Job) -> bool:
    """Whether a job has ended and keeps its results, which a cancellation deletes."""
    return job.ended and job.status not in STATUSES_WITHOUT_RESULTS


async def cancel_job(connection: RedisConnection, keys: Keys, job: Job, public_id: str) -> CancelResult:
    """Cancels a job; deletes the results of one that has ended. Raises RedisUnreachableError."""
    status = await jobs.cancel(connection, keys, job.job_id)
    if status in STATUSES_WITHOUT_RESULTS:
        return CancelResult(changed=False, outcome=f"{public_id} is already {status}")
    if status in FINAL_STATUSES:
        return CancelResult(changed=True, outcome=f"{public_id}: its results are deleted; it was {status}")
    done = f"{public_id}: cancelled, {job.done:,} of {job.n:,} inputs were done"
    return CancelResult(changed=True, outcome=done)
