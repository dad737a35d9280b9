"""What `redbatch jobs` does. Each function returns the exit code: 0, or 1 when something could not be done."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import typer
from rich.console import Console

from redbatch.jobs import view
from redbatch.queue_target import Where, failed, on_queue
from shared import jobs
from shared.jobs import Job
from shared.keys import Keys
from shared.messages import Failure, Vectors
from shared.connection import Link

MOST_FAILURES = 20
PORTION = 2_048


def show_all(where: Where, most: int, *, in_json: bool) -> int:
    """Prints the last jobs, newest first."""

    async def work(link: Link, keys: Keys) -> int:
        found = await jobs.latest(link, keys, most)
        if in_json:
            for job in found:
                typer.echo(json.dumps(view.as_dict(keys.queue, job)))
        else:
            Console(highlight=False).print(view.as_table(keys.queue, found, time.time() * 1000))
        return 0

    return on_queue(where, "jobs", work)


def show_one(where: Where, public: str, *, in_json: bool) -> int:
    """Prints a job whole."""

    async def work(link: Link, keys: Keys, job: Job) -> int:
        failures = await jobs.failures(link, keys, job.job_id, MOST_FAILURES)
        if in_json:
            typer.echo(json.dumps(view.as_dict(keys.queue, job, failures)))
        else:
            Console(highlight=False).print(view.as_text(keys.queue, job, failures))
        return 0

    return _on_job(where, public, work)


def cancel(where: Where, public: str) -> int:
    """Ends a job."""

    async def work(link: Link, keys: Keys, job: Job) -> int:
        status = await jobs.cancel(link, keys, job.job_id)
        if status in jobs.ENDED:
            return failed(f"{public} has ended: it is {status}")
        typer.echo(f"{public}: cancelled, {job.done:,} of {job.n:,} had been done")
        return 0

    return _on_job(where, public, work)


def write_results(where: Where, public: str, out: Path) -> int:
    """Writes the vectors of a job to a .npy file, a portion at a time."""

    async def work(link: Link, keys: Keys, job: Job) -> int:
        if not job.ended or job.status == "cancelled":
            return failed(f"{public} is {job.status}: it has no result")
        file: np.memmap[tuple[int, ...], np.dtype[np.float32]] | None = None
        written = 0
        part = out.with_name(f"{out.name}.part")
        for start in range(0, job.n, PORTION):
            for reply in await jobs.replies(link, keys, job, start, min(job.n, start + PORTION)):
                if isinstance(reply, Failure) or not isinstance(reply, Vectors):
                    continue
                if file is None:
                    file = np.lib.format.open_memmap(part, "w+", np.dtype("<f4"), (job.n, reply.dim))
                    file[:] = np.nan
                vectors = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)
                file[reply.position : reply.position + reply.n] = vectors
                written += reply.n
        if file is None:
            return failed(f"{public}: none of its {job.n:,} inputs has a vector; `redbatch jobs show` says why")
        file.flush()
        part.replace(out)
        typer.echo(f"{out}: {written:,} of {job.n:,} vectors of {file.shape[1]} numbers")
        return 0

    return _on_job(where, public, work)


def _on_job(where: Where, public: str, work: Callable[[Link, Keys, Job], Awaitable[int]]) -> int:
    """Runs some work on a job, which may be named with its queue or, within one, without."""
    queue, _, job_id = public.rpartition(".")

    async def find(link: Link, keys: Keys) -> int:
        job = await jobs.find(link, keys, job_id)
        if job is None:
            return failed(f"{public}: there is no such job in queue {keys.queue}")
        return await work(link, keys, job)

    return on_queue(replace(where, queue=queue or where.queue), "jobs", find)
