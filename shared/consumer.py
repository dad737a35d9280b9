"""The worker's operations on the queue: each script with typed arguments and a typed result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from shared import scripts
from shared.connection import BLOCK_S, Argument, RedisConnection
from shared.entry_fields import parse_entry
from shared.heartbeats import parse_heartbeat
from shared.jobs import MAX_RESULTS
from shared.keys import GROUP, LANES, QUEUES, RELEASED, Keys
from shared.messages import FAILING, STANDBY, Entry, Heartbeat, Ref
from shared.script_arguments import (
    ClaimArguments,
    CommitArguments,
    CommitRow,
    HandBackArguments,
    HeartbeatArguments,
    HeldRow,
    ReclaimArguments,
    RenewArguments,
)

WORKERS_TTL_MS = BEGUN_TTL_MS = 3_600_000
QUEUES_TTL_MS, BELL_TTL_MS = 600_000, 60_000
RELEASED_IDLE_MS = 86_400_000
MAX_RECLAIM_DELAY_MS = 500
MAX_DEAD_BODY_BYTES = 64 * 2**10
"""A longer body is not kept in a dead letter, which shows this: dead letters are for inspection, not to fill Redis."""

MAX_CLAIM_BYTES = 32 * 2**20
"""About the maximum of what one call delivers: Redis disconnects a client whose replies fill its memory."""

MAX_HEARTBEATS = 256
"""Maximum of what one call reads, so that it is short: Redis, and other calls of the connection, wait for it."""

_UNBOUNDED = 2**31


class ClaimResult(NamedTuple):
    """Entries that this worker now owns, and Redis' clock at that moment.

    `malformed` entries can only be discarded. `remaining` counts the entries of each lane, in the order of keys.LANES,
    that still wait: for other workers or for more credit. `released` counts the reclaimed entries that had been handed
    back: no worker stopped responding. A reclaim that has not searched all entries returns the `cursor` of the next.
    """

    now_ms: int
    entries: tuple[Entry, ...]
    malformed: tuple[Ref, ...] = ()
    remaining: tuple[int, ...] = (0,) * len(LANES)
    released: int = 0
    cursor: str = ""


class ClaimBudget(NamedTuple):
    """Limits of a claim: entries, tokens, and for each lane a share among `workers`, minus the entries held.

    Entries of all lanes count against `bulk_entries` and `bulk_tokens` too; bulk may use what is left of these.
    `bulk_owed` tokens of bulk are claimed before interactive entries. `held` counts interactive entries, `bulk_held`
    those of bulk.
    """

    entries: int
    tokens: int
    workers: int
    held: int
    bulk_entries: int = _UNBOUNDED
    bulk_tokens: int = _UNBOUNDED
    bulk_owed: int = 0
    bulk_held: int = 0


@dataclass(frozen=True, slots=True)
class ReclaimQuery:
    """Criteria of a reclaim: entries not renewed for `idle_ms`, of `owner` or of any worker, up to `max_entries`.

    `restarted`: the worker has just started again, and died while running the entries recorded as begun under its name.
    Entries for another `revision` are left to workers of that revision, until their deadline. The search goes on where
    the one ended that returned this `cursor`: a worker's own entries do not leave its search as they are taken.
    """

    idle_ms: int
    owner: str = ""
    max_entries: int = 256
    restarted: bool = False
    revision: str = ""
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class RenewResult:
    """Redis' clock, and for each entry whether this worker still owns it.

    `unowned_in_lane` counts the other entries that are still in their lanes: owned by another worker, or, in a group
    that was created again, delivered to any worker since, or not delivered yet.
    """

    now_ms: int
    owned: tuple[bool, ...]
    unowned_in_lane: int


class EntryAnswer(NamedTuple):
    """An encoded reply to an entry: an error if it `failed`. With `died_of`, the entry is also a dead letter.

    `num_truncated` of its inputs were cut to the model's maximum length. The model has read `num_tokens` of them.
    """

    entry: Entry
    reply: bytes
    died_of: str = ""
    failed: bool = False
    num_truncated: int = 0
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Options of a whole commit: the worker that commits, and how long a reply outlives its deadline.

    The last `max_dead_letters` dead letters are kept. `revision` is the revision of the model that gave the answers.
    """

    worker: str
    grace_ms: int
    max_dead_letters: int = 0
    revision: str = ""


def _parse_claim_result(now_ms: int, parsed: list[Entry | Ref]) -> ClaimResult:
    entries = tuple(each for each in parsed if isinstance(each, Entry))
    return ClaimResult(now_ms, entries, tuple(each for each in parsed if isinstance(each, Ref)))


async def join(connection: RedisConnection, keys: Keys) -> bool:
    """Creates the consumer group where it is missing; returns whether it was missing."""
    return bool(await connection.run(scripts.JOIN, [keys.epoch, *keys.lanes], [GROUP]))


async def claim(connection: RedisConnection, keys: Keys, worker: str, budget: ClaimBudget) -> ClaimResult:
    """Takes unread entries without waiting for any.

    Raises:
        GroupMissingError: `join` creates the group again.
        RedisUnreachableError: entries may have been delivered; read the worker's own (`reclaim` with `owner`).
    """
    args = ClaimArguments(
        group=GROUP,
        consumer=worker,
        max_entries=budget.entries,
        max_tokens=budget.tokens,
        max_bulk_entries=budget.bulk_entries,
        max_bulk_tokens=budget.bulk_tokens,
        bulk_owed=budget.bulk_owed,
        num_workers=budget.workers,
        held=budget.held,
        bulk_held=budget.bulk_held,
        max_bytes=MAX_CLAIM_BYTES,
    )
    now_ms, lanes, remaining = await connection.run(scripts.CLAIM, keys.lanes, args)
    parsed = [parse_entry(lane, raw) for lane, raws in enumerate(lanes) for raw in raws]
    return _parse_claim_result(now_ms, parsed)._replace(remaining=tuple(remaining))


async def await_entry(
    connection: RedisConnection, keys: Keys, worker: str, lanes_read: int = len(LANES), timeout_s: float = BLOCK_S
) -> tuple[Entry | Ref, ...]:
    """Waits for an unread entry in the first `lanes_read` lanes; takes one of each. Raises as `claim` does."""
    lanes = keys.lanes[:lanes_read]
    command: list[Argument] = ["XREADGROUP", "GROUP", GROUP, worker, "COUNT", 1, "BLOCK", int(timeout_s * 1000)]
    command += ("STREAMS", *lanes, *(">" for _ in lanes))
    reply = await connection.call(*command, block_s=timeout_s)
    if not reply:
        return ()
    return tuple(parse_entry(lanes.index(name.decode()), raw) for name, raws in reply for raw in raws)


async def commit(
    connection: RedisConnection, keys: Keys, answers: Sequence[EntryAnswer], options: CommitOptions
) -> list[bool]:
    """Answers entries; returns for each whether this was the answer that counted.

    Raises:
        RedisUnreachableError: whether the answers were stored is unknown; repeating the call is safe.
    """
    names = [keys.backlog, keys.dead, keys.jobs, keys.owed, keys.results, keys.kept, *keys.lanes]
    bells: dict[str, int] = {}
    args: list[Argument] = [*_commit_arguments(keys, options, len(answers))]
    reply_prefix = keys.reply("")
    for answer in answers:
        entry = answer.entry
        names.append(reply_prefix + entry.request_id)
        reply_key = len(names)
        if entry.bell and entry.bell not in bells and entry.bell.startswith(keys.bell("")):
            names.append(entry.bell)
            bells[entry.bell] = len(names)
        bell_key = bells.get(entry.bell, 0)
        job_position = entry.position if entry.job else ""
        args += CommitRow(  # by position, which takes half of the time of keywords: a commit has hundreds of rows
            *entry.ref,
            entry.deadline_ms,
            entry.request_id,
            reply_key,
            bell_key,
            answer.reply,
            entry.attempts,
            answer.died_of,
            job_position,
            entry.ref.n if answer.failed else 0,
            answer.num_truncated,
        )
    _, won = await connection.run(scripts.COMMIT, names, args)
    return [bool(flag) for flag in won]


def _commit_arguments(keys: Keys, options: CommitOptions, num_entries: int) -> CommitArguments:
    return CommitArguments(
        group=GROUP,
        num_lanes=len(LANES),
        grace_ms=options.grace_ms,
        bell_ttl_ms=BELL_TTL_MS,
        worker=options.worker,
        max_dead_letters=options.max_dead_letters,
        max_dead_body_bytes=MAX_DEAD_BODY_BYTES,
        job_prefix=keys.job(""),
        max_results=MAX_RESULTS,
        revision=options.revision,
        num_entries=num_entries,
    )


async def discard(connection: RedisConnection, keys: Keys, refs: Sequence[Ref]) -> None:
    """Removes entries that cannot be answered, because they name no request."""
    args: list[Argument] = [*_commit_arguments(keys, CommitOptions(worker="", grace_ms=0), len(refs))]
    for ref in refs:
        args += CommitRow(*ref)
    names = [keys.backlog, keys.dead, keys.jobs, keys.owed, keys.results, keys.kept, *keys.lanes]
    await connection.run(scripts.COMMIT, names, args)


async def renew(connection: RedisConnection, keys: Keys, worker: str, entries: Sequence[Entry]) -> RenewResult:
    """Keeps entries from being reclaimed.

    Raises:
        GroupMissingError: `join` creates the group again.
    """
    args: list[Argument] = [*RenewArguments(GROUP, worker, len(entries))]
    for entry in entries:
        args += HeldRow(entry.ref.lane, entry.ref.entry_id, entry.attempts)
    now_ms, owned, unowned_in_lane = await connection.run(scripts.RENEW, keys.lanes, args)
    return RenewResult(now_ms, tuple(bool(flag) for flag in owned), unowned_in_lane)


async def reclaim(
    connection: RedisConnection, keys: Keys, worker: str, issued_ms: int, query: ReclaimQuery
) -> ClaimResult | None:
    """Takes over entries that were not renewed for a while.

    Returns None if the call reached Redis more than MAX_RECLAIM_DELAY_MS after `issued_ms`: after a stall no worker is
    considered dead. The attempts of an entry are its previous ones, plus one if its last owner had begun to run it:
    another worker, or, for a worker that is `restarted`, its own previous process.

    Raises:
        GroupMissingError: `join` creates the group again.
    """
    args = ReclaimArguments(
        group=GROUP,
        consumer=worker,
        min_idle_ms=query.idle_ms,
        max_entries=query.max_entries,
        owner=query.owner,
        issued_ms=issued_ms,
        max_delay_ms=MAX_RECLAIM_DELAY_MS,
        begun_prefix=keys.begun(""),
        worker_prefix=keys.worker(""),
        restarted=int(query.restarted),
        revision=query.revision,
        released_consumer=RELEASED,
        max_bytes=MAX_CLAIM_BYTES,
        cursor=query.cursor,
    )
    now_ms, *rest = await connection.run(scripts.RECLAIM, keys.lanes, args)
    if not rest:
        return None
    lanes, cursor = rest
    rows = [(lane, *row) for lane, rows in enumerate(lanes) for row in rows]
    parsed = [parse_entry(lane, raw, count - 1) for lane, raw, count, _ in rows]
    return _parse_claim_result(now_ms, parsed)._replace(
        released=sum(row[-1] for row, each in zip(rows, parsed, strict=True) if isinstance(each, Entry)),
        cursor=cursor.decode(),
    )


async def hand_back(
    connection: RedisConnection, keys: Keys, worker: str, entries: Sequence[Entry], idle_ms: int = RELEASED_IDLE_MS
) -> int:
    """Releases entries for the next reclaim; returns how many this worker still owned.

    They look idle for `idle_ms`: long, so that the next reclaim finds them; or 0, if maybe no worker can run them and
    they must not block others.
    """
    args: list[Argument] = [*HandBackArguments(GROUP, worker, RELEASED, idle_ms, len(entries))]
    for entry in entries:
        args += HeldRow(entry.ref.lane, entry.ref.entry_id, entry.attempts)
    return int(await connection.run(scripts.HAND_BACK, keys.lanes, args))


async def mark_begun(connection: RedisConnection, keys: Keys, worker: str, entries: Sequence[Entry]) -> None:
    """Records which entries this worker begins to run: if it dies, the reclaim counts an attempt for each."""
    names = " ".join(f"{entry.ref.lane}/{entry.ref.entry_id.decode()}" for entry in entries)
    await connection.run(scripts.MARK_BEGUN, [keys.begun(worker)], [names, BEGUN_TTL_MS])


async def heartbeat(connection: RedisConnection, keys: Keys, beat: Heartbeat, ttl_ms: int) -> tuple[int, int]:
    """Sends a heartbeat; returns Redis' clock (ms) and the number of live workers that take work."""
    standby = int(beat.state in (STANDBY, FAILING))
    args = HeartbeatArguments(beat.worker, json.dumps(asdict(beat)), ttl_ms, WORKERS_TTL_MS, standby)
    now_ms, live = await connection.run(scripts.HEARTBEAT, [keys.worker(beat.worker), keys.workers, keys.standby], args)
    return now_ms, live


async def live_workers(connection: RedisConnection, keys: Keys) -> list[Heartbeat]:
    """Returns the heartbeats of the queue's live workers."""
    names = await connection.call("ZRANGE", keys.workers, 0, -1)
    beats: list[bytes | None] = []
    for start in range(0, len(names), MAX_HEARTBEATS):
        part = names[start : start + MAX_HEARTBEATS]
        beats += await connection.call_all([("GET", keys.worker(name.decode())) for name in part])
    return [beat for data in beats if data is not None and (beat := parse_heartbeat(data)) is not None]


async def announce(connection: RedisConnection, keys: Keys) -> bool:
    """Announces that a queue is served: gateways see it for ten minutes. Returns whether no worker had announced it."""
    return bool(await connection.run(scripts.ANNOUNCE, [QUEUES], [keys.queue, QUEUES_TTL_MS]))


async def leave(connection: RedisConnection, keys: Keys, worker: str) -> int:
    """Ends a worker's membership; returns how many entries it owes."""
    names = [keys.worker(worker), keys.begun(worker), *keys.lanes]
    return int(await connection.run(scripts.LEAVE, names, [GROUP, worker]))


async def withdraw(connection: RedisConnection, keys: Keys) -> None:
    """Ends the announcement of a queue."""
    await connection.call("ZREM", QUEUES, keys.queue)
