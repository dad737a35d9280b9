"""A client that creates jobs, and feeds them into the lanes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shared import job_results, job_uploads, jobs
from shared.codec import encode_body
from shared.connection import RedisConnection
from shared.feed_window import FeedWindow
from shared.job_uploads import UploadReservation, UploadResult
from shared.jobs import CreateResult, FeedResult, Job, JobCapacity, JobSpec
from shared.keys import Keys
from shared.messages import EMBED, Body, Failure, NewEntry, Vectors

CAPACITY = JobCapacity(1_600, 0.9)
WINDOW = FeedWindow(1_024, 10**9)
PER_ENTRY = 4
NOTHING_OWED = {"inputs": 0, "lane_inputs": 0, "entries": 0, "tokens": 0}


@dataclass
class JobClient:
    """Creates jobs, and feeds them into the lanes as workers do."""

    connection: RedisConnection
    worker_connection: RedisConnection
    keys: Keys

    async def upload(self, inputs: int, job_id: str = "") -> JobSpec:
        """Uploads the inputs of a job; each text names its index."""
        job_id = job_id or secrets.token_hex(16)
        new_entries = [self.new_entry(start, min(PER_ENTRY, inputs - start)) for start in range(0, inputs, PER_ENTRY)]
        assert (
            await self.reserve(UploadReservation(job_id, inputs, 50 * inputs, tenant="ann"), new_entries)
        ).status == "ok"
        return JobSpec(job_id, len(new_entries), 0, inputs, PER_ENTRY, "ann", "ann")

    async def reserve(
        self, reservation: UploadReservation, new_entries: Sequence[NewEntry] = (), failed: Sequence[Failure] = ()
    ) -> UploadResult:
        """Uploads inputs."""
        return await job_uploads.upload(self.connection, self.keys, reservation, new_entries, failed)

    def new_entry(self, start: int, n: int) -> NewEntry:
        """Returns an entry of a job; an input has ten tokens."""
        return NewEntry(start, n, 10 * n, encode_body(Body(EMBED, tuple(f"text {start + i}" for i in range(n)))))

    async def create_job(self, inputs: int, window: FeedWindow = WINDOW, **fields: Any) -> str:  # noqa: ANN401 - fields of JobSpec
        """Creates a job that must be accepted; returns its id."""
        spec = replace(await self.upload(inputs), **fields)
        assert await self.create(spec, window) == CreateResult("ok", spec.job_id)
        return spec.job_id

    async def create(
        self, spec: JobSpec, window: FeedWindow = WINDOW, capacity: JobCapacity = CAPACITY
    ) -> CreateResult:
        """Creates a job from the uploaded inputs."""
        return await jobs.create(self.connection, self.keys, spec, capacity, window)

    async def feed(self, window: FeedWindow = WINDOW) -> FeedResult:
        """Feeds the lanes."""
        return await jobs.feed(self.worker_connection, self.keys, window)

    async def job(self, job_id: str) -> Job:
        """Returns a job that must exist."""
        found = await jobs.find(self.connection, self.keys, job_id)
        assert found is not None
        return found

    async def numbers(self, job: Job, start: int = 0, stop: int = -1) -> list[float]:
        """Returns the vectors of a job, each of which is one number."""
        found = await job_results.replies(self.connection, self.keys, job, start, job.n if stop < 0 else stop)
        return [
            float(number)
            for each in found
            if isinstance(each, Vectors)
            for number in np.frombuffer(each.data, dtype="<f4")
        ]

    async def lane_bytes(self) -> tuple[int, int]:
        """Returns the bytes of jobs in the lanes: as they are counted, and those of the elements that are there."""
        counted = int(await self.connection.call("HGET", self.keys.owed, "bytes") or 0)
        num_bytes = 0
        for each in await jobs.latest(self.connection, self.keys, 100):
            key = self.keys.job(each.job_id)
            for position in await self.connection.call("HKEYS", f"{key}:fed"):
                num_bytes += await self.connection.call("HSTRLEN", f"{key}:in", position)
        return counted, num_bytes

    async def owed(self) -> dict[str, int]:
        """Returns the counters."""
        flat = await self.connection.call("HGETALL", self.keys.owed)
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        return {name: int(found.get(name.encode(), 0)) for name in ("inputs", "lane_inputs", "entries", "tokens")}
