"""The vectors of a job: a page of JSON, or a .npy file that is read in portions."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import numpy as np

from api.dialects.vectors import dump_json
from api.jobs.representation import JobRows, result_url
from shared import jobs
from shared.messages import Vectors

if TYPE_CHECKING:
    from api.jobs.store import JobStore
    from shared.jobs import Job

MAX_PAGE_VECTORS = 1_000
"""Maximum vectors of one page: as JSON these take about 4 MB and 15 ms of the event loop."""

INPUTS_PER_READ = 2_048
"""Inputs whose replies are read from Redis in one call."""

NPY = "application/x-npy"


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


def npy_header(n: int, dim: int) -> bytes:
    """Returns the header of a .npy file of float32 with shape (n, dim)."""
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (n, dim)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


async def iter_npy(job_store: JobStore, job: Job, dim: int, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yields a .npy file of the vectors from `start` up to `stop`, with NaN for failed inputs.

    Raises JobNotFoundError, which cuts the answer short, if vectors are deleted meanwhile.
    """
    yield npy_header(stop - start, dim)
    for at in range(start, stop, INPUTS_PER_READ):
        end = min(stop, at + INPUTS_PER_READ)
        replies = await jobs.replies(job_store.connection, job_store.keys, job, at, end)
        yield JobRows(replies, at, end, expired=job.status == "expired").array(dim).tobytes()
