"""Operations on jobs, for gateways, workers and the command line: each script with typed arguments and a typed result.

A job is a request without a waiting client. Its inputs lie beside the lanes, and are fed into them as fast as the fleet
processes them, so that a hundred thousand of them do not delay other requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

from shared import scripts
from shared.connection import Argument, RedisConnection
from shared.feed_window import MIN_WINDOW, FeedWindow
from shared.keys import BULK, GROUP, LANES, Keys
from shared.messages import EMBED, NO_RESULTS, Entry
from shared.script_arguments import (
    JobCancelArguments,
    JobCreateArguments,
    JobFeedArguments,
    JobInputRow,
    JobSplitArguments,
)

Status = Literal["queued", "running", "done", "failed", "cancelled", "expired", "deleted"]
FINAL_STATUSES: tuple[Status, ...] = ("done", "failed", "cancelled", "expired", "deleted")
STATUSES_WITHOUT_RESULTS: tuple[Status, ...] = ("cancelled", "deleted")

ENTRY_GRACE_MS = 30_000
"""Entries of a job outlive it by this time: the job expires as a whole, not entry by entry."""

MAX_RESULTS = 10_000
RESULT_TTL_MS = 3_600_000
"""The results stream keeps the last jobs that ended, for an hour: a reader may be away for this time."""

CHECK_INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class JobSpec:
    """How to create a job whose `inputs` were uploaded, in `entries` entries; `failed` of the inputs cannot be run.

    The errors of these were uploaded in `failures`, each of which may be that of several inputs.

    `owner` may read the job. It has to end within `timeout_ms`, and its results are kept for `ttl_ms`. `digest`
    identifies the request, and with an `idempotency` name the same request is not created twice. Its entries carry its
    `traceparent` and its `tenant`. `op` is the operation on each input. The results stream carries results of up to
    `max_inline_bytes`, and a link to larger ones; with NO_RESULTS neither.
    """

    job_id: str
    entries: int
    failed: int
    inputs: int
    per_entry: int
    owner: str = ""
    tenant: str = ""
    lane: int = BULK
    timeout_ms: int = 86_400_000
    ttl_ms: int = 3_600_000
    idempotency: str = ""
    digest: str = ""
    traceparent: str = ""
    op: str = EMBED
    max_inline_bytes: int = NO_RESULTS
    failures: int = 0


class JobCapacity(NamedTuple):
    """Bounds of results: bytes of that of each input, and the share of Redis' maxmemory that may be used with them."""

    bytes_each: int
    memory_ratio: float


class CreateResult(NamedTuple):
    """Outcome of a creation: `ok`; or `same`: an equal request created the job `job_id` before.

    `different`: the idempotency key belongs to another request. `lost`: inputs are missing. `full`: there is no memory
    for the results. Except after `ok`, the upload is left.
    """

    status: Literal["ok", "same", "different", "lost", "full"]
    job_id: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored. Times are Redis' clock, in ms; None for what has not happened.

    `n` inputs are `done`, `failed`, or waiting; `per_entry` of them are answered together, unless one of these fails.
    `revisions` are the revisions of the model that computed its results: several, if the model changed meanwhile. `op`
    is the operation on each input, of messages.OPS. `truncated` inputs were cut to the model's maximum length.
    """

    job_id: str
    status: Status
    owner: str
    lane: int
    n: int
    done: int
    failed: int
    per_entry: int
    created_ms: int
    expires_ms: int
    ttl_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    revisions: tuple[str, ...] = ()
    op: str = EMBED
    truncated: int = 0

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status in FINAL_STATUSES


class FeedResult(NamedTuple):
    """Outcome of a feed: entries added, and added again; jobs that expired, and jobs that are open."""

    entries: int
    restored: int
    expired: int
    open: int


async def create(
    connection: RedisConnection, keys: Keys, spec: JobSpec, capacity: JobCapacity, window: FeedWindow = MIN_WINDOW
) -> CreateResult:
    """Creates a job from the uploaded inputs.

    Raises:
        RedisUnreachableError: whether the job was created is unknown; repeating the call creates no second one.
    """
    record = keys.idempotency(spec.idempotency) if spec.idempotency else keys.job(spec.job_id)
    names = [keys.backlog, keys.jobs, keys.owed, keys.epoch, keys.all_jobs, record, keys.uploads, *keys.lanes]
    status, *rest = await connection.run(scripts.JOB_CREATE, names, _create_arguments(keys, spec, capacity, window))
    if status == b"same":
        known_id, is_equal = rest
        return CreateResult("same" if is_equal == b"1" else "different", known_id.decode())
    return CreateResult(status.decode(), spec.job_id)


def _create_arguments(keys: Keys, spec: JobSpec, capacity: JobCapacity, window: FeedWindow) -> JobCreateArguments:
    return JobCreateArguments(
        job_prefix=keys.job(""),
        job_id=spec.job_id,
        num_entries=spec.entries,
        num_failures=spec.failures,
        num_failed=spec.failed,
        num_inputs=spec.inputs,
        per_entry=spec.per_entry,
        owner=spec.owner,
        tenant=spec.tenant,
        lane=spec.lane,
        timeout_ms=spec.timeout_ms,
        ttl_ms=spec.ttl_ms,
        entry_grace_ms=ENTRY_GRACE_MS,
        digest=spec.digest if spec.idempotency else "",
        result_bytes=capacity.bytes_each,
        memory_ratio=capacity.memory_ratio,
        max_lane_entries=window.entries,
        max_lane_tokens=window.tokens,
        max_lane_bytes=window.bytes,
        traceparent=spec.traceparent,
        op=spec.op,
        max_inline_bytes=spec.max_inline_bytes,
    )


async def find(connection: RedisConnection, keys: Keys, job_id: str) -> Job | None:
    """Returns a job, or None if there is none with this id."""
    return (await find_all(connection, keys, [job_id]))[0]


async def find_all(connection: RedisConnection, keys: Keys, job_ids: Sequence[str]) -> list[Job | None]:
    """Returns the jobs with these ids, None for an id without a job."""
    found = await connection.call_all([("HGETALL", keys.job(each)) for each in job_ids])
    return [
        _job(job_id, dict(zip(flat[::2], flat[1::2], strict=True))) for job_id, flat in zip(job_ids, found, strict=True)
    ]


async def statuses(connection: RedisConnection, keys: Keys, job_ids: Sequence[str]) -> list[str]:
    """Returns the status of these jobs; empty for a job that no longer exists."""
    found = await connection.call_all([("HGET", keys.job(each), "status") for each in job_ids])
    return [(each or b"").decode() for each in found]


async def latest(connection: RedisConnection, keys: Keys, limit: int) -> list[Job]:
    """Returns the jobs that were created last, the newest first."""
    ids = await connection.call("ZREVRANGE", keys.all_jobs, 0, limit - 1)
    return [each for each in await find_all(connection, keys, [each.decode() for each in ids]) if each is not None]


async def all_statuses(connection: RedisConnection, keys: Keys) -> dict[str, str]:
    """Returns the statuses of the jobs that are listed, the latest 2,000, by id; the newest first."""
    ids = [each.decode() for each in await connection.call("ZREVRANGE", keys.all_jobs, 0, -1)]
    found = zip(ids, await statuses(connection, keys, ids), strict=True)
    return {job_id: status for job_id, status in found if status}


async def result_bytes(connection: RedisConnection, keys: Keys) -> Counter[str]:
    """Returns the bytes of the results of jobs, kept and expected, by tenant."""
    flat = [each.decode("utf-8", "replace") for each in await connection.call("HGETALL", keys.owed)]
    amounts: Counter[str] = Counter()
    for field, amount in zip(flat[::2], flat[1::2], strict=True):
        kind, space, tenant = field.partition(" ")
        if space and kind in ("result_bytes", "kept_bytes"):
            amounts[tenant] += int(amount)
    return amounts


async def cancel(connection: RedisConnection, keys: Keys, job_id: str, *, if_open: bool = False) -> str:
    """Ends a job, and deletes its inputs and results; returns its previous status, empty if there is no such job.

    With `if_open`, a job that has ended keeps its results.
    """
    return await _end(connection, keys, job_id, if_open=if_open)


async def expire(connection: RedisConnection, keys: Keys, job_id: str) -> bool:
    """Ends a job if its time is over, and deletes its inputs; returns whether it did. The job keeps its results."""
    return bool(await _end(connection, keys, job_id, if_expired=True))


async def _end(
    connection: RedisConnection, keys: Keys, job_id: str, *, if_expired: bool = False, if_open: bool = False
) -> str:
    names = [keys.backlog, keys.jobs, keys.owed, keys.results, keys.kept, *keys.lanes]
    args = JobCancelArguments(keys.job(""), job_id, GROUP, MAX_RESULTS, int(if_expired), int(if_open))
    status = await connection.run(scripts.JOB_CANCEL, names, args)
    return (status or b"").decode()


async def feed(connection: RedisConnection, keys: Keys, window: FeedWindow) -> FeedResult:
    """Moves inputs of jobs into the lanes, up to the window; checks all jobs from time to time."""
    names = [keys.backlog, keys.jobs, keys.owed, keys.results, keys.all_jobs, keys.uploads, keys.kept, *keys.lanes]
    args = JobFeedArguments(
        job_prefix=keys.job(""),
        max_lane_entries=window.entries,
        max_lane_tokens=window.tokens,
        max_lane_bytes=window.bytes,
        group=GROUP,
        max_results=MAX_RESULTS,
        check_interval_ms=CHECK_INTERVAL_MS,
        result_ttl_ms=RESULT_TTL_MS,
    )
    return FeedResult(*await connection.run(scripts.JOB_FEED, names, args))


async def split_entry(connection: RedisConnection, keys: Keys, entry: Entry, bodies: Sequence[bytes]) -> bool:
    """Replaces a failed entry by one for each of its inputs; returns whether the entry was still there."""
    share, rest = divmod(entry.ref.cost, len(bodies))
    args: list[Argument] = [
        *JobSplitArguments(
            job_prefix=keys.job(""),
            job_id=entry.request_id,
            group=GROUP,
            entry_id=entry.ref.entry_id,
            position=entry.position,
            num_inputs=len(bodies),
        )
    ]
    for i, body in enumerate(bodies):
        args += JobInputRow(share + (rest if i == 0 else 0), body)
    return bool(await connection.run(scripts.JOB_SPLIT, [keys.owed, keys.lanes[entry.ref.lane]], args))


def _job(job_id: str, fields: Mapping[bytes, bytes]) -> Job | None:
    """Parses a job from Redis, which is untrusted: None for an invalid job, or one whose inputs are still uploaded."""
    status = fields.get(b"status", b"").decode("ascii", "replace")
    if status not in get_args(Status):
        return None
    try:
        lane, n, done, failed, per_entry, created_ms, expires_ms, ttl_ms = (
            int(fields[name])
            for name in (b"lane", b"n", b"done", b"failed", b"per_entry", b"created_ms", b"expires_ms", b"ttl_ms")
        )
        started_ms, finished_ms, truncated = (
            int(fields[name]) if name in fields else None for name in (b"started_ms", b"finished_ms", b"truncated")
        )
    except (KeyError, ValueError):
        return None
    if not 0 <= lane < len(LANES) or per_entry < 1:
        return None
    owner = fields.get(b"owner", b"").decode("utf-8", "replace")
    return Job(
        job_id,
        cast("Status", status),
        owner,
        lane,
        n,
        done,
        failed,
        per_entry,
        created_ms,
        expires_ms,
        ttl_ms,
        started_ms,
        finished_ms,
        tuple(fields.get(b"revisions", b"").decode("utf-8", "replace").split()),
        fields.get(b"op", EMBED.encode()).decode("ascii", "replace"),  # a job of an earlier version has none
        truncated or 0,
    )
