"""What gateways, workers and people ask of jobs: each script with typed arguments and a typed answer.

A job is a request that nobody waits for. Its inputs lie beside the lanes, and come into them as fast as the fleet gets
them done, so that a hundred thousand of them are in nobody's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

from shared import scripts
from shared.codec import CodecError, decode_reply, encode_reply
from shared.keys import BULK, GROUP, LANES, Keys
from shared.messages import Draft, Entry, Failure, Reply
from shared.connection import Argument, Link
from shared.tenants import Limits, told

Status = Literal["queued", "running", "done", "failed", "cancelled", "expired"]
ENDED: tuple[Status, ...] = ("done", "failed", "cancelled", "expired")

UPLOAD_TTL_MS = 120_000
"""Inputs of a job that is not made within this time after the last of them came are forgotten."""

ENTRY_OUTLIVES_MS = 30_000
"""Entries of a job have so much more time than the job: it expires as a whole, not one by one."""

MOST_RESULTS = 10_000
RESULT_STAYS_MS = 3_600_000
"""The results stream keeps the last jobs that ended, for an hour: so long may whoever reads it be away."""

LOOK_EVERY_MS = 1_000
MOST_ENTRIES = 1_024
LEAST_TOKENS = 8_192
AHEAD_S = 2.0
"""Of jobs, about what the fleet gets done in this time is in the lanes: a worker claims a second's work at most."""


class Window(NamedTuple):
    """How much of all jobs may be in the lanes at a time."""

    entries: int
    tokens: int


def window(tokens_per_s: float, batch_tokens: int = 0, workers: int = 1) -> Window:
    """Returns how much of jobs may be in the lanes. Pure.

    Args:
        tokens_per_s: what the fleet gets done; 0 while unknown.
        batch_tokens: what a batch may hold: a few of them have to wait, or nobody could tell how fast the fleet is.
        workers: of the fleet.
    """
    return Window(MOST_ENTRIES, max(LEAST_TOKENS, 4 * batch_tokens * workers, int(AHEAD_S * tokens_per_s)))


SMALLEST = window(0.0)
"""So much comes into the lanes with a new job; the rest is for the workers to fetch."""


@dataclass(frozen=True, slots=True)
class Making:
    """A job whose `inputs` are there, in so many `entries`, and how it is to be made: `failed` of them cannot be run.

    `owner` may read it. It has `timeout_ms` to end, and `ttl_ms` are its results kept. The `digest` says what was asked
    for, and with an `idempotency` name nothing is made twice. With `limits` its `tenant` is held to these: its inputs
    have `cost` tokens. Its entries carry its `traceparent`.
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
    cost: int = 0
    limits: Limits | None = None
    traceparent: str = ""


class Room(NamedTuple):
    """What all jobs may take: inputs without a result, bytes of each one's result, and a share of Redis' maxmemory."""

    inputs: int
    bytes_each: int
    memory_ratio: float


class Made(NamedTuple):
    """What became of a job that was to be made: it is `ok`; or the `same` was asked for before, and is `job_id`.

    It was `different` from what the same idempotency key stood for, or inputs were `lost`, or there is no room: `full`.
    Or it is `limited`: its tenant may have so much in `wait_ms`.
    """

    status: Literal["ok", "same", "different", "lost", "full", "limited"]
    job_id: str
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job. Times are Redis' clock, in ms; None for what has not happened.

    `n` inputs are `done`, have `failed`, or wait; `per_entry` of them are answered together, unless one of these fails.
    `revisions` are those of the model that have given it vectors: several, if that was changed meanwhile.
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

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status in ENDED


class Fed(NamedTuple):
    """What feeding the lanes has done: entries brought, and added again; jobs that expired, and that are open."""

    entries: int
    again: int
    expired: int
    open: int


async def put(link: Link, keys: Keys, job_id: str, drafts: Sequence[Draft], failed: Sequence[Failure] = ()) -> None:
    """Brings some inputs of a job that is to be made; and, of those that cannot be run, what is wrong with them.

    Raises:
        RedisUnreachable: whether it was done is unknown; repeating it is safe. Redis may be full.
    """
    args: list[Argument] = [UPLOAD_TTL_MS, len(drafts)]
    for draft in drafts:
        args += (draft.position, b"%d %d %b" % (draft.n, draft.cost, draft.body))
    for each in failed:
        args += (each.position, encode_reply(each))
    await link.run(scripts.JOB_PUT, [keys.job(job_id)], args)


async def forget(link: Link, keys: Keys, job_id: str) -> None:
    """Removes what was put of a job, unless it was made."""
    await link.run(scripts.JOB_FORGET, [keys.job(job_id)], [])


async def make(link: Link, keys: Keys, making: Making, room: Room, wide: Window = SMALLEST) -> Made:
    """Makes a job of the inputs that were put.

    Raises:
        RedisUnreachable: whether it was done is unknown; repeating it makes no second one.
    """
    remembered = keys.idempotency(making.idempotency) if making.idempotency else keys.job(making.job_id)
    names = [keys.backlog, keys.jobs, keys.owed, keys.results, keys.epoch, keys.all_jobs, remembered]
    names += [keys.tenants, *keys.lanes]
    digest = making.digest if making.idempotency else ""
    args: list[Argument] = [keys.job(""), making.job_id, making.entries, making.failed, making.inputs]
    args += (making.per_entry, making.owner, making.tenant, making.lane, making.timeout_ms, making.ttl_ms)
    args += (
        ENTRY_OUTLIVES_MS,
        digest,
        *room,
        *wide,
        MOST_RESULTS,
        making.cost,
        told(making.limits),
        making.traceparent,
    )
    status, *rest = await link.run(scripts.JOB_MAKE, names, args)
    if status == b"limited":
        return Made("limited", making.job_id, rest[0])
    if status == b"same":
        known, same = rest
        return Made("same" if same == b"1" else "different", known.decode())
    return Made(status.decode(), making.job_id)


async def find(link: Link, keys: Keys, job_id: str) -> Job | None:
    """Returns a job; None if there is none of this id."""
    return (await find_all(link, keys, [job_id]))[0]


async def find_all(link: Link, keys: Keys, job_ids: Sequence[str]) -> list[Job | None]:
    """Returns what there is under some ids."""
    found = await link.call_all([("HGETALL", keys.job(each)) for each in job_ids])
    return [
        _job(job_id, dict(zip(flat[::2], flat[1::2], strict=True))) for job_id, flat in zip(job_ids, found, strict=True)
    ]


async def statuses(link: Link, keys: Keys, job_ids: Sequence[str]) -> list[str]:
    """Returns the status of some jobs; empty for what is no job any more."""
    found = await link.call_all([("HGET", keys.job(each), "status") for each in job_ids])
    return [(each or b"").decode() for each in found]


async def latest(link: Link, keys: Keys, most: int) -> list[Job]:
    """Returns the jobs that were made last, the newest first."""
    ids = await link.call("ZREVRANGE", keys.all_jobs, 0, most - 1)
    return [each for each in await find_all(link, keys, [each.decode() for each in ids]) if each is not None]


async def replies(link: Link, keys: Keys, job: Job, start: int, stop: int) -> list[Reply]:
    """Returns the replies to a job's inputs from `start` up to `stop`, in order, as far as there are any.

    The first and the last may hold inputs beyond these. What is unreadable counts as missing.
    """
    first = start // job.per_entry * job.per_entry
    heads = range(first, min(stop, job.n), job.per_entry)
    found = await _replies_at(link, keys, job.job_id, heads)
    split = [
        at
        for head in heads
        if (reply := found.get(head)) is None or reply.n < min(job.per_entry, job.n - head)
        for at in range(head + 1, min(head + job.per_entry, job.n))
    ]
    if split:
        found |= await _replies_at(link, keys, job.job_id, split)
    return [found[at] for at in sorted(found) if at < stop and at + found[at].n > start]


async def failures(link: Link, keys: Keys, job_id: str, most: int) -> list[Failure]:
    """Returns what is said of the inputs that failed, of the first `most` that did, by position."""
    positions = await link.call("LRANGE", f"{keys.job(job_id)}:failed", 0, most - 1)
    found = await _replies_at(link, keys, job_id, sorted(map(int, positions)))
    return [each for each in found.values() if isinstance(each, Failure)]


async def _replies_at(link: Link, keys: Keys, job_id: str, positions: Sequence[int]) -> dict[int, Reply]:
    if not positions:
        return {}
    raws = await link.call("HMGET", f"{keys.job(job_id)}:out", *positions)
    found = {}
    for position, raw in zip(positions, raws, strict=True):
        if raw is not None:
            try:
                found[position] = decode_reply(raw)
            except CodecError:
                continue
    return found


async def cancel(link: Link, keys: Keys, job_id: str) -> str:
    """Ends a job, if it has not ended; returns its status before, empty if there is no such job."""
    names = [keys.backlog, keys.jobs, keys.owed, keys.results, *keys.lanes]
    status = await link.run(scripts.JOB_CANCEL, names, [keys.job(""), job_id, GROUP, MOST_RESULTS])
    return (status or b"").decode()


async def feed(link: Link, keys: Keys, wide: Window) -> Fed:
    """Brings inputs of jobs into the lanes, up to so many, and looks after jobs now and then."""
    names = [keys.backlog, keys.jobs, keys.owed, keys.results, keys.all_jobs, *keys.lanes]
    args: list[Argument] = [keys.job(""), *wide, GROUP, MOST_RESULTS, LOOK_EVERY_MS, RESULT_STAYS_MS]
    return Fed(*await link.run(scripts.JOB_FEED, names, args))


async def split(link: Link, keys: Keys, entry: Entry, bodies: Sequence[bytes]) -> bool:
    """Makes an entry of each input of an entry that failed; returns whether it was still there."""
    share, rest = divmod(entry.ref.cost, len(bodies))
    args: list[Argument] = [keys.job(""), entry.request_id, GROUP, entry.ref.entry_id, entry.position, len(bodies)]
    for at, body in enumerate(bodies):
        args += (share + (rest if at == 0 else 0), body)
    return bool(await link.run(scripts.JOB_SPLIT, [keys.owed, keys.lanes[entry.ref.lane]], args))


def _job(job_id: str, fields: Mapping[bytes, bytes]) -> Job | None:
    """What is in Redis is untrusted: what is no job was not found, nor is one whose inputs still come."""
    status = fields.get(b"status", b"").decode("ascii", "replace")
    if status not in get_args(Status):
        return None
    try:
        lane, n, done, failed, per_entry, created_ms, expires_ms, ttl_ms = (
            int(fields[name])
            for name in (b"lane", b"n", b"done", b"failed", b"per_entry", b"created_ms", b"expires_ms", b"ttl_ms")
        )
        started_ms, finished_ms = (
            int(fields[name]) if name in fields else None for name in (b"started_ms", b"finished_ms")
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
    )
