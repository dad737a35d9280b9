"""Implementation of `redbatch jobs`. Each function returns the exit code: 0, or 1 after a failure."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from redbatch.exit_codes import report_failure, report_misuse
from redbatch.jobs import view
from redbatch.preconditions import check_file
from redbatch.queue_target import QueueTarget, ask_shards, report_left_out, run_on_shards
from redbatch.terminal import make_console, print_line
from shared import job_cancel, job_results, jobs
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.job_cancel import has_results
from shared.job_ids import format_shard_name, split_public_id
from shared.job_reader import JobsOfShard, newest_first, read_jobs
from shared.job_view import job_as_dict
from shared.jobs import Job
from shared.keys import Keys
from shared.messages import CLASSIFY, SCORE, VECTOR_OPS, Failure, Result, Values, Vectors
from shared.process.log_text import printable_line
from shared.producer import list_queues
from shared.shard_connections import ShardConnection

MAX_FAILURES = 20
CHUNK_INPUTS = 2_048


def list_jobs(target: QueueTarget, limit: int, *, show_all: bool, in_json: bool) -> int:
    """Prints at most `limit` jobs of all queues, or of the one that is named; newest first.

    Only with `show_all`, those that were deleted after their end are among them: `redbatch embed` leaves many. On
    stderr it prints which shards do not answer.
    """

    async def task(shards: Sequence[ShardConnection], keys: Keys) -> int:
        read = partial(_read_shard, keys, limit, only_queue=target.queue is not None, show_all=show_all)
        answers, problems = await ask_shards(shards, read)
        found = [each for of_queues, _ in answers.values() for each in of_queues]
        latest = newest_first(found, limit)
        num_left_out = (max(0, sum(each.num_all for each in found) - limit), sum(each.num_hidden for each in found))
        result_bytes = sum((sizes for _, sizes in answers.values()), Counter[str]())
        if in_json:
            for name, job in latest:
                print_line(json.dumps(job_as_dict(name, job)))
            for hint in view.hints(len(latest), num_left_out):
                print_line(hint, to_stderr=True)
        else:
            place = "All queues" if target.queue is None else f"Queue {target.queue}"
            make_console().print(view.as_table(place, latest, num_left_out, time.time() * 1000, result_bytes))
        report_left_out("jobs", shards, problems)
        return 0

    return run_on_shards(target, "jobs", task)


async def _read_shard(
    keys: Keys, limit: int, shard: ShardConnection, *, only_queue: bool, show_all: bool
) -> tuple[list[JobsOfShard], Counter[str]]:
    """Returns the jobs of each queue, and what their results take of Redis, in bytes by tenant."""
    connection, found, result_bytes = shard.connection, list[JobsOfShard](), Counter[str]()
    # The default queue, too, which its workers may have left long ago.
    names = {keys.queue} if only_queue else {keys.queue, *await list_queues(connection)}
    for name in sorted(names):
        queue_keys = connection.keys_of(name)
        found.append(await read_jobs(connection, queue_keys, shard.number, limit, show_all=show_all))
        result_bytes += await jobs.result_bytes(connection, queue_keys)
    return found, result_bytes


def show_job(target: QueueTarget, public_id: str, *, in_json: bool) -> int:
    """Prints one job in full."""

    async def task(connection: RedisConnection, keys: Keys, job: Job) -> int:
        failures = await job_results.failures(connection, keys, job.job_id, MAX_FAILURES)
        shard_name = format_shard_name(keys.queue, split_public_id(public_id)[1])
        if in_json:
            print_line(json.dumps(job_as_dict(shard_name, job, failures)))
        else:
            make_console().print(view.as_text(shard_name, job, failures))
        return 0

    return _run_on_job(target, public_id, task)


def cancel_job(target: QueueTarget, public_id: str, confirm: Callable[[str], bool], *, in_json: bool) -> int:
    """Cancels a job, and prints what was done or, as JSON, the job as it is then.

    Deletes the results of one that has ended if `confirm`, called with a question, returns true.
    """

    async def task(connection: RedisConnection, keys: Keys, job: Job) -> int:
        if has_results(job.status) and not confirm(f"{public_id} is {job.status}. Delete its results permanently?"):
            outcome = "nothing deleted"
        else:
            changed, outcome, _ = await job_cancel.cancel_job(connection, keys, job, public_id)
            if not changed:
                return report_failure(outcome)
        if in_json:
            shard_name = format_shard_name(keys.queue, split_public_id(public_id)[1])
            outcome = json.dumps(job_as_dict(shard_name, await jobs.find(connection, keys, job.job_id) or job))
        print_line(outcome)
        return 0

    return _run_on_job(target, public_id, task)


def write_results(target: QueueTarget, public_id: str, out: Path, *, force: bool) -> int:
    """Writes the results of a job to a file: vectors, and logits of scores, as .npy, any other results as JSON lines.

    An existing file is replaced only with `force`. Inputs without a result are a failure; the others are written.
    """
    try:
        check_file("--out", out)
    except ValueError as error:
        return report_misuse(str(error))
    if out.exists() and not force:
        return report_misuse(f"{out} exists: choose another output, or replace it with --force")

    async def task(connection: RedisConnection, keys: Keys, job: Job) -> int:
        if not job.ended:
            return report_failure(f"{public_id} is {job.status}: try again when it has ended")
        if job.status in jobs.STATUSES_WITHOUT_RESULTS:
            return report_failure(f"{public_id} was {job.status}, so it has no result")
        partial = out.with_name(f"{out.name}.part")
        if (out.suffix == ".npy") != (job.op in VECTOR_OPS):
            form = "a .npy file" if job.op in VECTOR_OPS else "JSON lines"
            return report_failure(
                f"{public_id}: its results are {form}: name another file than {out.suffix or out.name}"
            )
        if job.op in VECTOR_OPS:
            written, dim = await _write_vectors(connection, keys, job, partial)
            kind = {SCORE: "logits", CLASSIFY: f"rows of {dim} logits"}.get(job.op, f"vectors of {dim} numbers")
        else:
            written = await _write_lines(connection, keys, job, partial)
            kind = "results as JSON lines"
        if written:
            partial.replace(out)
            print_line(f"{out}: {written:,} of {job.n:,} {kind}")
        else:
            partial.unlink(missing_ok=True)
        if written == job.n:
            return 0
        return report_failure(f"{public_id}: {await _describe_missing(connection, keys, job, job.n - written)}")

    return _run_on_job(target, public_id, task)


async def _describe_missing(connection: RedisConnection, keys: Keys, job: Job, num_missing: int) -> str:
    """Returns how many inputs have no result, with the error of one, and where all errors are."""
    verb = "has" if num_missing == 1 else "have"
    count = f"{num_missing:,} of {job.n:,} inputs {verb} no result"
    if num_missing > job.failed:
        count += f" ({num_missing - job.failed:,} had not run when the job expired)"
    failures = await job_results.failures(connection, keys, job.job_id, MAX_FAILURES)
    if not failures:
        return count
    shown = "all errors" if job.failed <= MAX_FAILURES else f"{MAX_FAILURES} errors, /jobs/ID/results of a gateway all"
    return f"{count}; input {failures[0].position}: {failures[0].message} `redbatch jobs show` has {shown}."


async def _write_vectors(connection: RedisConnection, keys: Keys, job: Job, path: Path) -> tuple[int, int]:
    """Writes vectors to a .npy file, with NaN for failed inputs. Returns their number and dimension; 0 without any."""
    file: np.memmap[tuple[int, ...], np.dtype[np.float32]] | None = None
    written = dim = 0
    for start in range(0, job.n, CHUNK_INPUTS):
        for reply in await job_results.replies(connection, keys, job, start, min(job.n, start + CHUNK_INPUTS)):
            if not isinstance(reply, Vectors):
                continue
            if file is None:
                dim = reply.dim
                file = np.lib.format.open_memmap(path, "w+", np.dtype("<f4"), (job.n, dim))
                file[:] = np.nan
            vectors = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, dim)
            file[reply.position : reply.position + reply.n] = vectors
            written += reply.n
    if file is not None:
        file.flush()
    return written, dim


async def _write_lines(connection: RedisConnection, keys: Keys, job: Job, path: Path) -> int:
    """Writes a line of JSON for each input, null for a failed one. Returns the number of results."""
    written = at = 0
    with path.open("wb") as file:
        for start in range(0, job.n, job.per_entry):  # one entry at a time: its results may be long
            for reply in await job_results.replies(connection, keys, job, start, min(job.n, start + job.per_entry)):
                lines = [] if isinstance(reply, Failure) else _encode_rows(reply)
                file.writelines([b"null\n"] * (reply.position - at))
                file.writelines(each + b"\n" for each in lines)
                at = reply.position + len(lines)
                written += len(lines)
        file.writelines([b"null\n"] * (job.n - at))
    return written


def _encode_rows(result: Result) -> list[bytes]:
    """Returns the result of each input as JSON: a value, or the vectors of its tokens."""
    if isinstance(result, Values):
        return list(result.values)
    vectors = np.frombuffer(result.data, dtype="<f4").reshape(-1, result.dim)
    return [json.dumps(each.tolist()).encode() for each in np.split(vectors, np.cumsum(result.counts)[:-1])]


def _run_on_job(
    target: QueueTarget, public_id: str, task: Callable[[RedisConnection, Keys, Job], Awaitable[int]]
) -> int:
    """Runs a task on a job. Its id may start with "QUEUE." or "QUEUE@SHARD."; otherwise `target` names the queue."""
    queue, number, job_id = split_public_id(public_id)

    async def find_and_run(shards: Sequence[ShardConnection], keys: Keys) -> int:
        if number >= len(shards):
            return report_failure(f"{public_id}: on shard {number}: give all URLs in REDBATCH_REDIS_SHARDS")
        try:
            connection = shards[number].connection
            keys = connection.keys_of(keys.queue)
            job = await jobs.find(connection, keys, job_id)
            if job is None:
                return report_failure(f"{public_id}: there is no such job in queue {keys.queue}")
            return await task(connection, keys, job)
        except RedisUnreachableError as error:
            return report_failure(f"{shards[number].place}: {printable_line(error.log_message)}")

    return run_on_shards(replace(target, queue=queue or target.queue), "jobs", find_and_run)
