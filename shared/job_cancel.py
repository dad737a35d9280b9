"""Cancels a job and says what became of it: for `redbatch jobs` and for the console of a gateway."""

from __future__ import annotations

from typing import NamedTuple

from shared import jobs
from shared.connection import RedisConnection
from shared.jobs import FINAL_STATUSES, STATUSES_WITHOUT_RESULTS, Job
from shared.keys import Keys


class CancelResult(NamedTuple):
    """Outcome of a cancellation: whether anything changed, and what did, in words.

    `previous` is the status before; empty if the job was deleted meanwhile.
    """

    changed: bool
    outcome: str
    previous: str


def has_results(status: str) -> bool:
    """Whether a job with this status has ended and keeps its results, which a cancellation deletes."""
    return status in FINAL_STATUSES and status not in STATUSES_WITHOUT_RESULTS


async def cancel_job(
    connection: RedisConnection, keys: Keys, job: Job, public_id: str, *, if_open: bool = False
) -> CancelResult:
    """Cancels a job; deletes the results of one that has ended, unless `if_open`. Raises RedisUnreachableError."""
    previous = await jobs.cancel(connection, keys, job.job_id, if_open=if_open)
    if not previous:
        outcome = f"{public_id}: there is no such job"
    elif previous in STATUSES_WITHOUT_RESULTS:
        outcome = f"{public_id} is already {previous}"
    elif not has_results(previous):
        outcome = f"{public_id}: cancelled, {job.done:,} of {job.n:,} inputs were done"
    elif if_open:
        outcome = f"{public_id} is {previous}: its results are kept"
    else:
        outcome = f"{public_id}: its results are deleted; it was {previous}"
    is_open = previous not in ("", *FINAL_STATUSES)
    return CancelResult(is_open or (has_results(previous) and not if_open), outcome, previous)
