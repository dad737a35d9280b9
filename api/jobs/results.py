"""The vectors of a job: a page of JSON, or a .npy file that is read in portions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from api.dialects.vectors import dump_json, npy_header
from api.jobs.representation import errors_of, result_url
from shared import jobs
from shared.errors import JobNotFoundError
from shared.messages import Failure, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.jobs.store import JobStore
    from shared.jobs import Job
    from shared.messages import Reply

MAX_PAGE_VECTORS = 1_000
"""Maximum vectors of one page: as JSON these take about 4 MB and 15 ms of the event loop."""

INPUTS_PER_READ = 2_048
"""Inputs whose replies are read from Redis in one call."""

NPY = "application/x-npy"


class JobRows:
    """The vectors of a job's inputs from `start` up to `stop`, and the errors of the failed ones.

    Args:
        replies: in order, as far as there are any; the first and the last may extend beyond the bounds.
        start: index of the first input.
        stop: index after the last input.
        expired: whether the job has expired, so that some inputs may never have run.

    Attributes:
        vectors: a vector for each input, or None if it failed.
        errors: those of the failed inputs.
        dim: dimension of the vectors; 0 if there are none.

    Raises:
        JobNotFoundError: a result is missing although the job has not expired: Redis no longer keeps it.
    """

    def __init__(self, replies: Sequence[Reply], start: int, stop: int, *, expired: bool) -> None:
        self.vectors: list[NDArray[np.float32] | None] = [None] * (stop - start)
        self.errors: list[dict[str, object]] = []
        self.dim = 0
        for reply in replies:
            if isinstance(reply, Failure):
                self.errors += [each for each in errors_of(reply) if start <= int(str(each["index"])) < stop]
            elif isinstance(reply, Vectors):
                self.dim = reply.dim
                vectors = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)
                for at in range(max(start, reply.position), min(stop, reply.position + reply.n)):
                    self.vectors[at - start] = vectors[at - reply.position]
        failed_indexes = {each["index"] for each in self.errors}
        for index in range(start, stop):
            if self.vectors[index - start] is None and index not in failed_indexes:
                if not expired:
                    raise JobNotFoundError("Redis no longer keeps the results of this job: submit it again.")
                message = "The job expired before this input had run."
                self.errors.append({"index": index, "code": "deadline_exceeded", "message": message})

    def array(self, dim: int) -> NDArray[np.float32]:
        """Returns the vectors as an array of shape (stop - start, dim), with NaN for failed inputs."""
        nan_row = np.full(dim, np.nan, dtype="<f4")
        if not self.vectors:
            return np.empty((0, dim), dtype="<f4")
        return np.stack([nan_row if each is None else each for each in self.vectors])


async def json_page(job_store: JobStore, job: Job, public_id: str, offset: int, limit: int) -> bytes:
    """Returns a page of vectors as JSON, with null for failed inputs, whose errors are in `errors`."""
    stop = min(job.n, offset + limit)
    replies = await jobs.replies(job_store.connection, job_store.keys, job, offset, stop)
    rows = JobRows(replies, offset, max(offset, stop), expired=job.status == "expired")
    next_url = result_url(public_id, stop, limit) if stop < job.n else None
    document = {"id": public_id, "n": job.n, "offset": offset, "embeddings": rows.vectors}
    return dump_json(document | {"errors": rows.errors, "next_url": next_url})


async def dim_of(job_store: JobStore, job: Job) -> int:
    """Returns the dimension of a job's vectors; 0 if it has none."""
    for start in range(0, job.n, INPUTS_PER_READ):
        for reply in await jobs.replies(
            job_store.connection, job_store.keys, job, start, min(job.n, start + INPUTS_PER_READ)
        ):
            if isinstance(reply, Vectors):
                return reply.dim
    return 0


async def iter_npy(job_store: JobStore, job: Job, dim: int, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yields a .npy file of the vectors from `start` up to `stop`, with NaN for failed inputs.

    Raises JobNotFoundError, which cuts the answer short, if vectors are deleted meanwhile.
    """
    yield npy_header(stop - start, dim)
    for at in range(start, stop, INPUTS_PER_READ):
        end = min(stop, at + INPUTS_PER_READ)
        replies = await jobs.replies(job_store.connection, job_store.keys, job, at, end)
        yield JobRows(replies, at, end, expired=job.status == "expired").array(dim).tobytes()
