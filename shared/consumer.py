"""What a worker asks of the queue: each script with typed arguments and a typed answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from shared import scripts
from shared.codec import MAX_INPUTS
from shared.jobs import MOST_RESULTS
from shared.keys import GROUP, LANES, QUEUES, RELEASED, Keys
from shared.messages import STANDBY, Entry, Heartbeat, Ref
from shared.connection import BLOCK_MARGIN_S, BLOCK_S, Argument, Link

WORKERS_TTL_MS = 3_600_000
QUEUES_TTL_MS = 600_000
BEGUN_TTL_MS = 3_600_000
BELL_TTL_MS = 60_000
RELEASED_IDLE_MS = 86_400_000
RECLAIM_LATE_MS = 500
MOST_DEAD_BODY_BYTES = 64 * 2**10
"""A longer body is not kept in a dead letter, which says so: they are to be looked at, not to fill Redis."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LATEST_MS = 2**52
_MOST_TOKENS = 2**31
_UNBOUNDED = 2**31
_Raw = tuple[bytes, list[bytes]]


class Claimed(NamedTuple):
    """Entries that are now this worker's, and Redis' clock at that moment.

    `malformed` ones can only be discarded. `left` entries of each lane, in the order of keys.LANES, wait on: for other
    workers or for more credit. `released` of those that a reclaim took had been handed back: nobody fell silent.
    """

    now_ms: int
    entries: tuple[Entry, ...]
    malformed: tuple[Ref, ...] = ()
    left: tuple[int, ...] = (0,) * len(LANES)
    released: int = 0


class Allowance(NamedTuple):
    """How much a claim may take: entries, tokens, and of each lane a share among `workers`, what is held counting.

    Bulk has what all of it leaves of `bulk_entries` and `bulk_tokens`; `bulk_owed` tokens of it go before the
    interactive ones. `held` are interactive entries, `bulk_held` those of bulk.
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
class Abandoned:
    """What a reclaim looks for: entries not renewed for `idle_ms`, of `owner` or of anyone, `most` at once.

    `reborn` says that whoever asks has only just come to life: it died of what is written down as begun under its name.
    Entries for another `revision` are left to those who have it, until their deadline.
    """

    idle_ms: int
    owner: str = ""
    most: int = 256
    reborn: bool = False
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Renewed:
    """Redis' clock, and for each entry whether it is still this worker's.

    `elsewhere` of the others are in their lanes: with another worker, or, in a group that was made anew, delivered to
    anyone since, or to nobody yet.
    """

    now_ms: int
    owned: tuple[bool, ...]
    elsewhere: int


class Answer(NamedTuple):
    """A reply for an entry, encoded: an error if it `failed`. One that `died_of` something is a dead letter too."""

    entry: Entry
    reply: bytes
    died_of: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Committing:
    """What holds for a whole commit: who commits, and how long a reply outlives its deadline.

    Of dead letters the last `max_dead_letters` are kept. `revision` is that of the model that gave the answers.
    """

    worker: str
    grace_ms: int
    max_dead_letters: int = 0
    revision: str = ""


def parse_entry(lane: int, raw: _Raw, attempts: int = 0) -> Entry | Ref:
    """Returns the entry that Redis holds, or only its Ref when its fields are not those of an entry."""
    entry_id, flat = raw
    fields = dict(zip(flat[::2], flat[1::2], strict=False))
    try:
        ref = Ref(lane, entry_id, max(1, int(fields[b"n"])), max(1, int(fields[b"cost"])))
        if ref.n > MAX_INPUTS or ref.cost > _MOST_TOKENS:
            return Ref(lane, entry_id, 0, 0)  # no gateway wrote this: the counters know nothing of it
        request_id = fields[b"id"].decode("ascii")
        position, deadline_ms = int(fields[b"pos"]), int(fields[b"deadline_ms"])
        if not (_REQUEST_ID.fullmatch(request_id) and 0 <= position < 2**31 and 0 <= deadline_ms <= _LATEST_MS):
            return ref
        return Entry(
            ref=ref,
            version=int(fields[b"v"]),
            request_id=request_id,
            position=position,
            deadline_ms=deadline_ms,
            bell=fields.get(b"bell", b"").decode("ascii"),
            traceparent=fields.get(b"traceparent", b"").decode("ascii", "replace"),
            revision=fields.get(b"revision", b"").decode("ascii"),
            body=fields[b"body"],
            attempts=attempts,
            job=b"job" in fields,
        )
    except (KeyError, ValueError):
        return Ref(lane, entry_id, 0, 0)


def _claimed(now_ms: int, parsed: list[Entry | Ref]) -> Claimed:
    entries = tuple(each for each in parsed if isinstance(each, Entry))
    return Claimed(now_ms, entries, tuple(each for each in parsed if isinstance(each, Ref)))


async def join(link: Link, keys: Keys) -> bool:
    """Makes the consumer group where it is missing; returns whether it was."""
    return bool(await link.run(scripts.JOIN, [keys.epoch, *keys.lanes], [GROUP]))


async def claim(link: Link, keys: Keys, worker: str, allowance: Allowance) -> Claimed:
    """Takes unread entries without waiting for any.

    Raises:
        GroupMissing: `join` makes the group again.
        RedisUnreachable: entries may have been delivered; read the worker's own (`reclaim` with `owner`).
    """
    args: list[Argument] = [GROUP, worker, allowance.entries, allowance.tokens, allowance.bulk_entries]
    args += (allowance.bulk_tokens, allowance.bulk_owed, allowance.workers, allowance.held)
    args.append(allowance.bulk_held)
    now_ms, lanes, left = await link.run(scripts.CLAIM, keys.lanes, args)
    parsed = [parse_entry(lane, raw) for lane, raws in enumerate(lanes) for raw in raws]
    return _claimed(now_ms, parsed)._replace(left=tuple(left))


async def await_entry(
    link: Link, keys: Keys, worker: str, lanes_read: int = len(LANES), timeout_s: float = BLOCK_S
) -> tuple[Entry | Ref, ...]:
    """Waits for an unread entry in the first `lanes_read` lanes, and takes it (one of each). Raises as `claim` does."""
    lanes = keys.lanes[:lanes_read]
    command: list[Argument] = ["XREADGROUP", "GROUP", GROUP, worker, "COUNT", 1, "BLOCK", int(timeout_s * 1000)]
    command += ("STREAMS", *lanes, *(">" for _ in lanes))
    reply = await link.call(*command, timeout_s=timeout_s + BLOCK_MARGIN_S)
    if not reply:
        return ()
    return tuple(parse_entry(lanes.index(name.decode()), raw) for name, raws in reply for raw in raws)


async def commit(link: Link, keys: Keys, answers: Sequence[Answer], how: Committing) -> list[bool]:
    """Answers entries; returns for each whether this was the answer that counted.

    Raises:
        RedisUnreachable: whether it was done is unknown; repeating it is safe.
    """
    names = [keys.backlog, keys.dead, keys.jobs, keys.owed, keys.results, *keys.lanes]
    bells: dict[str, int] = {}
    args: list[Argument] = [GROUP, len(LANES), how.grace_ms, BELL_TTL_MS, how.worker, how.max_dead_letters]
    args += (MOST_DEAD_BODY_BYTES, keys.job(""), MOST_RESULTS, how.revision, len(answers))
    for answer in answers:
        entry, ref = answer.entry, answer.entry.ref
        names.append(keys.reply(entry.request_id))
        reply_at = len(names)
        if entry.bell and entry.bell not in bells and entry.bell.startswith(keys.bell("")):
            names.append(entry.bell)
            bells[entry.bell] = len(names)
        args += (ref.lane, ref.entry_id, ref.n, ref.cost, entry.deadline_ms, entry.request_id)
        args += (reply_at, bells.get(entry.bell, 0), answer.reply, entry.attempts, answer.died_of)
        args += (entry.position if entry.job else "", ref.n if answer.failed else 0)
    _, won = await link.run(scripts.COMMIT, names, args)
    return [bool(flag) for flag in won]


async def discard(link: Link, keys: Keys, refs: Sequence[Ref]) -> None:
    """Removes entries that nobody could answer, because they name no request."""
    args: list[Argument] = [GROUP, len(LANES), 0, BELL_TTL_MS, "", 0, 0, keys.job(""), 0, "", len(refs)]
    for ref in refs:
        args += (ref.lane, ref.entry_id, ref.n, ref.cost, 0, "", 0, 0, "", 0, "", "", 0)
    names = [keys.backlog, keys.dead, keys.jobs, keys.owed, keys.results, *keys.lanes]
    await link.run(scripts.COMMIT, names, args)


async def renew(link: Link, keys: Keys, worker: str, entries: Sequence[Entry]) -> Renewed:
    """Keeps entries from being reclaimed.

    Raises:
        GroupMissing: `join` makes the group again.
    """
    args: list[Argument] = [GROUP, worker, len(entries)]
    for entry in entries:
        args += (entry.ref.lane, entry.ref.entry_id, entry.attempts)
    now_ms, owned, elsewhere = await link.run(scripts.RENEW, keys.lanes, args)
    return Renewed(now_ms, tuple(bool(flag) for flag in owned), elsewhere)


async def reclaim(link: Link, keys: Keys, worker: str, issued_ms: int, search: Abandoned) -> Claimed | None:
    """Takes over entries that were not renewed for a while.

    Returns None when the call reached Redis over RECLAIM_LATE_MS after `issued_ms`: nobody is taken for dead after a
    stall. The attempts of an entry are its own, plus one if its last owner had begun to run it: another worker, or, for
    one that is `reborn`, it in its last life.

    Raises:
        GroupMissing: `join` makes the group again.
    """
    args: list[Argument] = [GROUP, worker, search.idle_ms, search.most, search.owner, issued_ms, RECLAIM_LATE_MS]
    args += (keys.begun(""), keys.worker(""), int(search.reborn), search.revision, RELEASED)
    now_ms, *rest = await link.run(scripts.RECLAIM, keys.lanes, args)
    if not rest:
        return None
    rows = [(lane, *row) for lane, rows in enumerate(rest[0]) for row in rows]
    parsed = [parse_entry(lane, raw, count - 1) for lane, raw, count, _ in rows]
    return _claimed(now_ms, parsed)._replace(
        released=sum(row[-1] for row, each in zip(rows, parsed, strict=True) if isinstance(each, Entry))
    )


async def hand_back(
    link: Link, keys: Keys, worker: str, entries: Sequence[Entry], idle_ms: int = RELEASED_IDLE_MS
) -> int:
    """Gives entries to whoever reclaims next; returns how many were still this worker's to give.

    They look idle for `idle_ms`: for long, so that the next reclaim finds them; or not at all, when nobody may know
    what to do with them and they must not stand in the way of others.
    """
    args: list[Argument] = [GROUP, worker, RELEASED, idle_ms, len(entries)]
    for entry in entries:
        args += (entry.ref.lane, entry.ref.entry_id, entry.attempts)
    given: int = await link.run(scripts.HAND_BACK, keys.lanes, args)
    return given


async def mark_begun(link: Link, keys: Keys, worker: str, entries: Sequence[Entry]) -> None:
    """Writes down which entries' run begins, for the reclaim that counts attempts if this worker dies in it."""
    names = " ".join(f"{entry.ref.lane}/{entry.ref.entry_id.decode()}" for entry in entries)
    await link.run(scripts.BEGIN, [keys.begun(worker)], [names, BEGUN_TTL_MS])


async def heartbeat(link: Link, keys: Keys, beat: Heartbeat, ttl_ms: int) -> tuple[int, int]:
    """Says that the worker lives; returns Redis' clock (ms) and the number of live workers that take work."""
    standby = int(beat.state == STANDBY)
    args: list[Argument] = [beat.worker, json.dumps(asdict(beat)), ttl_ms, WORKERS_TTL_MS, standby]
    now_ms, live = await link.run(scripts.HEARTBEAT, [keys.worker(beat.worker), keys.workers, keys.standby], args)
    return now_ms, live


async def announce(link: Link, keys: Keys) -> None:
    """Says that a queue is served: for ten minutes gateways are told of it."""
    await link.run(scripts.ANNOUNCE, [QUEUES], [keys.queue, QUEUES_TTL_MS])


async def leave(link: Link, keys: Keys, worker: str) -> int:
    """Takes the worker's name out of the group where it owes nothing; returns how many entries it still owes."""
    names = [keys.worker(worker), keys.begun(worker), *keys.lanes]
    owed: int = await link.run(scripts.LEAVE, names, [GROUP, worker])
    return owed
