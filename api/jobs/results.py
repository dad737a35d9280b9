"""The vectors of a job: a page of JSON, or all of them as a .npy file, a portion at a time."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import numpy as np

from api.dialects.vectors import dump
from api.jobs.representation import Rows, result_url
from shared import jobs
from shared.messages import Vectors

if TYPE_CHECKING:
    from api.jobs.store import Desk
    from shared.jobs import Job

MOST_IN_A_PAGE = 1_000
"""As JSON these take some 4 MB and 15 ms of the event loop."""

PORTION = 2_048
NPY = "application/x-npy"


async def page(desk: Desk, job: Job, public: str, offset: int, limit: int) -> bytes:
    """Returns a page of vectors as JSON: null for those that failed, of which `errors` tells."""
    stop = min(job.n, offset + limit)
    found = await jobs.replies(desk.reading, desk.keys, job, offset, stop)
    rows = Rows(found, offset, max(offset, stop), expired=job.status == "expired")
    following = result_url(public, stop, limit) if stop < job.n else None
    told = {"id": public, "n": job.n, "offset": offset, "embeddings": rows.found}
    return dump(told | {"errors": rows.errors, "next_url": following})


async def dim_of(desk: Desk, job: Job) -> int:
    """Returns how long the vectors of a job are; 0 if it has none."""
    for start in range(0, job.n, PORTION):
        for reply in await jobs.replies(desk.reading, desk.keys, job, start, min(job.n, start + PORTION)):
            if isinstance(reply, Vectors):
                return reply.dim
    return 0


def npy_head(n: int, dim: int) -> bytes:
    """Returns what goes before the numbers in a .npy file of float32 and shape (n, dim)."""
    head = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (n, dim)}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


async def npy(desk: Desk, job: Job, dim: int, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yields a .npy file of the vectors from `start` up to `stop`: NaN for those that failed.

    Raises JobNotFound, which cuts the answer short, where they are gone meanwhile.
    """
    yield npy_head(stop - start, dim)
    for at in range(start, stop, PORTION):
        end = min(stop, at + PORTION)
        found = await jobs.replies(desk.reading, desk.keys, job, at, end)
        yield Rows(found, at, end, expired=job.status == "expired").array(dim).tobytes()
