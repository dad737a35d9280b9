"""Implementation of `redbatch jobs`. Each function returns the exit code: 0, or 1 after a failure."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import typer
from rich.console import Console

from redbatch.exit_codes import report_failure
from redbatch.jobs import view
from redbatch.queue_target import QueueTarget, run_on_queue
from shared import job_results, jobs
from shared.connection import RedisConnection
from shared.jobs import Job
from shared.keys import Keys
from shared.messages import Failure, Vectors

MAX_FAILURES = 20
CHUNK_INPUTS = 2_048


def list_jobs(target: QueueTarget, limit: int, *, in_json: bool) -> int:
    """Prints at most `limit` jobs, newest first."""

    async def task(connection: RedisConnection, keys: Keys) -> int:
        latest = await jobs.latest(connection, keys, limit)
        if in_json:
            for job in latest:
                typer.echo(json.dumps(view.as_dict(keys.queue, job)))
        else:
            Console(highlight=False).print(view.as_table(keys.queue, latest, time.time() * 1000))
        return 0

    return run_on_queue(target, "jobs", task)


def show_job(target: QueueTarget, public_id: str, *, in_json: bool) -> int:
    """Prints one job in full."""

    async def task(connection: RedisConnection, keys: Keys, job: Job) -> int:
        failures = await job_results.failures(connection, keys, job.job_id, MAX_FAILURES)
        if in_json:
            typer.echo(json.dumps(view.as_dict(keys.queue, job, failures)))
        else:
            Console(highlight=False).print(view.as_text(keys.queue, job, failures))
        return 0

    return _run_on_job(target, public_id, task)


def cancel_job(target: QueueTarget, public_id: str) -> int:
    """Cancels a job."""

    async def task(connection: RedisConnection, keys: Keys, job: Job) -> int:
        status = await jobs.cancel(connection, keys, job.job_id)
        if status in jobs.FINAL_STATUSES:
            return report_failure(f"{public_id} has already ended: it is {status}")
        typer.echo(f"{public_id}: cancelled, {job.done:,} of {job.n:,} inputs were done")
        return 0

    return _run_on_job(target, public_id, task)


def write_results(target: QueueTarget, public_id: str, out: Path) -> int:
    """Writes the vectors of a job to a .npy file, CHUNK_INPUTS at a time. Rows of failed inputs are NaN."""

    async def task(connection: RedisConnection, keys: Keys, job: Job) -> int:
        if not job.ended or job.status == "cancelled":
            return report_failure(f"{public_id} is {job.status}: it has no result")
        file: np.memmap[tuple[int, ...], np.dtype[np.float32]] | None = None
        written = 0
        partial = out.with_name(f"{out.name}.part")
        for start in range(0, job.n, CHUNK_INPUTS):
            for reply in await job_results.replies(connection, keys, job, start, min(job.n, start + CHUNK_INPUTS)):
                if isinstance(reply, Failure) or not isinstance(reply, Vectors):
                    continue
                if file is None:
                    file = np.lib.format.open_memmap(partial, "w+", np.dtype("<f4"), (job.n, reply.dim))
                    file[:] = np.nan
                vectors = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)
                file[reply.position : reply.position + reply.n] = vectors
                written += reply.n
        if file is None:
            return report_failure(f"{public_id}: none of its {job.n:,} inputs has a vector; see `redbatch jobs show`")
        file.flush()
        partial.replace(out)
        typer.echo(f"{out}: {written:,} of {job.n:,} vectors of {file.shape[1]} numbers")
        return 0

    return _run_on_job(target, public_id, task)


def _run_on_job(
    target: QueueTarget, public_id: str, task: Callable[[RedisConnection, Keys, Job], Awaitable[int]]
) -> int:
    """Runs a task on a job. Its id may start with "QUEUE."; otherwise `target` names the queue."""
    queue, _, job_id = public_id.rpartition(".")

    async def find_and_run(connection: RedisConnection, keys: Keys) -> int:
        job = await jobs.find(connection, keys, job_id)
        if job is None:
            return report_failure(f"{public_id}: there is no such job in queue {keys.queue}")
        return await task(connection, keys, job)

    return run_on_queue(replace(target, queue=queue or target.queue), "jobs", find_and_run)
