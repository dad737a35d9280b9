"""The results of a job: a page of JSON, or vectors as a .npy file that is read in portions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import orjson

from api.dialects.vectors import dump_json, npy_header
from api.jobs.representation import errors_of, result_url
from api.memory_budget import size_of_reply
from shared import job_results
from shared.errors import JobNotFoundError
from shared.messages import Failure, Values, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.fair_lock import FairLock
    from api.http.client_connection import ClientConnection
    from api.jobs.result_form import ResultForm
    from api.jobs.store import JobStore
    from api.tenants import ShareHolder
    from shared.jobs import Job
    from shared.messages import Reply, Result

    Row = NDArray[np.float32] | orjson.Fragment

MAX_PAGE_INPUTS = 1_000
"""Maximum results of one page: as JSON, vectors take about 4 MB and 15 ms of the event loop."""

MAX_PAGE_BYTES = 32 * 2**20
"""A page ends with the entry whose results exceed this. It is read in growing portions, as sizes are unknown before."""

PORTION_BYTES = 2**20
"""Bytes of vectors that a .npy file is read in: until the next portion is there, one stays in memory."""

MAX_DIM_INPUTS = 2_048
"""Inputs whose replies are read at a time to find the dimension."""

NPY = "application/x-npy"


class JobRows:
    """The results of a job's inputs from `start` up to `stop`, and the errors of the failed ones.

    Args:
        replies: in order, as far as there are any; the first and the last may extend beyond the bounds.
        start: index of the first input.
        stop: index after the last input.
        form: of the rows.
        expired: whether the job has expired, so that some inputs may never have run.

    Attributes:
        rows: the result of each input: a vector, the vectors of its tokens, or JSON; None if the input failed.
        errors: those of the failed inputs.
        truncated: indices, in the job, of the inputs that were cut to the model's maximum length.

    Raises:
        JobNotFoundError: a result is missing although the job has not expired: Redis no longer keeps it.
        InternalError: as `ResultForm.rows` does.
    """

    def __init__(self, replies: Sequence[Reply], start: int, stop: int, form: ResultForm, *, expired: bool) -> None:
        self.rows: list[Row | None] = [None] * (stop - start)
        self.errors: list[dict[str, object]] = []
        self.truncated: list[int] = []
        for reply in replies:
            if isinstance(reply, Failure):
                self.errors += [each for each in errors_of(reply) if start <= int(str(each["index"])) < stop]
                continue
            rows = _rows_of(reply, form)
            indices = [reply.position + each for each in reply.truncated]
            self.truncated += [each for each in indices if start <= each < stop]
            for at in range(max(start, reply.position), min(stop, reply.position + reply.n)):
                row = rows[at - reply.position]
                if (error := form.error_of(row)) is not None:
                    self.errors.append({"index": at, **error})
                    continue
                self.rows[at - start] = row
        failed_indexes = {each["index"] for each in self.errors}
        for index in range(start, stop):
            if self.rows[index - start] is None and index not in failed_indexes:
                if not expired:
                    raise JobNotFoundError("Redis no longer keeps the results of this job: submit it again.")
                message = "The job expired before this input had run."
                self.errors.append({"index": index, "code": "deadline_exceeded", "message": message})

    def array(self, dim: int) -> NDArray[np.float32]:
        """Returns vectors as an array of shape (stop - start, dim), with NaN for failed inputs."""
        nan_row = np.full(dim, np.nan, dtype="<f4")
        if not self.rows:
            return np.empty((0, dim), dtype="<f4")
        return np.stack([nan_row if each is None else np.asarray(each) for each in self.rows])


def _rows_of(result: Result, form: ResultForm) -> Sequence[Row]:
    if isinstance(result, Values):
        return [orjson.Fragment(each) for each in result.values]
    vectors = form.rows(np.frombuffer(result.data, dtype="<f4").reshape(-1, result.dim))
    return np.split(vectors, np.cumsum(result.counts)[:-1]) if result.counts else list(vectors)


@dataclass(frozen=True, slots=True)
class JobResults:
    """Reads the results of a job from Redis, one portion at a time in the whole gateway: each may take 64 MiB.

    They are returned in a `form`. `lock` is held while a portion is read and encoded, in the turn of `holder`, for a
    request whose `client` is there: all methods raise ClientDisconnect when it has left.
    """

    job_store: JobStore
    job: Job
    form: ResultForm
    client: ClientConnection
    lock: FairLock
    holder: ShareHolder

    async def json_page(self, public_id: str, offset: int, limit: int) -> bytes:
        """Returns a page of results as JSON, with null for failed inputs, whose errors are in `errors`.

        The page ends early if its results take more than MAX_PAGE_BYTES; `next_url` leads to the rest.
        """
        job, form = self.job, self.form
        async with self._portion():
            replies, stop = await self._read_page(offset, min(job.n, offset + limit))
            rows = JobRows(replies, offset, stop, form, expired=job.status == "expired")
            next_url = result_url(public_id, stop, limit, **form.query) if stop < job.n else None
            found = [row if row is None else row[0] for row in rows.rows] if form.is_score else rows.rows
            document = {"id": public_id, "n": job.n, "offset": offset}
            labels = {"labels": form.labels} if form.labels else {}
            truncated = {"truncated": rows.truncated} if rows.truncated else {}
            end = {"errors": rows.errors, "next_url": next_url}
            return dump_json({**document, **labels, form.field: found, **truncated, **end})

    async def dim(self) -> int:
        """Returns the dimension of the vectors; 0 if there are none."""
        for start in range(0, self.job.n, MAX_DIM_INPUTS):
            async with self._portion():
                replies = await self._replies(start, min(self.job.n, start + MAX_DIM_INPUTS))
            for reply in replies:
                if isinstance(reply, Vectors):
                    return reply.dim
        return 0

    async def iter_npy(self, dim: int, bounds: range) -> AsyncIterator[bytes]:
        """Yields a .npy file of the vectors of a range of inputs, with NaN for failed ones.

        A portion is read once the client has the one before it: of a client that does not read, one is in memory.

        Raises JobNotFoundError if vectors are deleted meanwhile.
        """
        header = npy_header(len(bounds), dim)
        if not bounds:
            yield header
        step = max(1, PORTION_BYTES // (4 * max(1, dim)) // self.job.per_entry) * self.job.per_entry
        for at in range(bounds.start, bounds.stop, step):
            await self.client.wait_until_sent()
            yield header + await self._read_array(dim, at, min(bounds.stop, at + step))
            header = b""

    async def _read_array(self, dim: int, start: int, stop: int) -> bytes:
        async with self._portion():
            replies = await self._replies(start, stop)
            return JobRows(replies, start, stop, self.form, expired=self.job.status == "expired").array(dim).tobytes()

    async def _read_page(self, offset: int, stop: int) -> tuple[list[Reply], int]:
        """Returns the replies of a page, and where it ends. Each call reads whole entries: no reply comes twice."""
        per_entry = step = self.job.per_entry
        found: list[Reply] = []
        size, at = 0, offset
        while at < stop and size < MAX_PAGE_BYTES:
            end = min(stop, at // per_entry * per_entry + step)
            replies = await self._replies(at, end)
            size += sum(map(size_of_reply, replies))
            found += replies
            at = end
            if size <= MAX_PAGE_BYTES // 4:
                step *= 2
        return found, max(offset, at)

    @asynccontextmanager
    async def _portion(self) -> AsyncIterator[None]:
        async with self.lock.turn(self.holder):
            self.client.check()  # it may have left while others held the lock
            yield

    async def _replies(self, start: int, stop: int) -> Sequence[Reply]:
        return await job_results.replies(self.job_store.connection, self.job_store.keys, self.job, start, stop)
