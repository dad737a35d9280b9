"""What a gateway asks of the queue: each script with typed arguments and a typed answer."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from shared import scripts
from shared.keys import BULK, GROUP, INTERACTIVE, LANES, QUEUES, Keys
from shared.messages import MOST_TOKENS, Draft, Heartbeat, Ref
from shared.connection import Argument, Link
from shared.settings import QUEUE_PATTERN
from shared.tenants import NOBODY_ACTIVE, Active, Limits, told

SUBMITTED_TTL_MS = 360_000
"""Longer than any deadline: a submit may be repeated until then."""

BULK_FILLS = 0.5
"""Bulk may fill the queue up to this share of its bounds; the rest is kept for those who wait."""

TENANT_ACTIVE_MS = 2_000
"""A tenant that has asked for nothing for so long has no share: what it leaves is the others'."""

MOST_REPLIES = 65_536
"""So many replies at most are popped of a request at once: it has one for each of its entries."""

MOST_QUEUES = 64
"""So many at most does a gateway serve."""

_HEARTBEAT = TypeAdapter(Heartbeat)


@dataclass(frozen=True, slots=True)
class Bound:
    """How much may be in the queue, for all gateways together."""

    inputs: int
    tokens: int = MOST_TOKENS


class Submission(NamedTuple):
    """Some entries of one request, ready to go into its lane.

    `budget_ms` is the time left to its deadline; `most_tokens` may be in its lane, with it, or it would come too late.
    `exempt` entries were accepted before and pass both bounds; one with nothing to be done before it passes the second.
    Those with a `revision` are for workers of that one alone. With `limits` its `tenant` is held to these.
    """

    request_id: str
    drafts: tuple[Draft, ...]
    budget_ms: int
    lane: int = INTERACTIVE
    exempt: bool = False
    bell: str = ""
    tenant: str = ""
    limits: Limits | None = None
    traceparent: str = ""
    most_tokens: int = MOST_TOKENS
    revision: str = ""


class Submitted(NamedTuple):
    """What became of a submission: a Ref for each draft if it is `ok`, or `behind` others, in bulk; otherwise none.

    Then it was `late`, or its `lane` was `full` or `slow` (with the `tokens` that it would have had before it), or it
    was `limited` (with the ms after which its tenant may come again).
    """

    status: str
    refs: tuple[Ref, ...]
    lane: int = INTERACTIVE
    tokens: int = 0
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """The answer to one submit call: Redis' clock, the queue's epoch, and an outcome for each submission."""

    now_ms: int
    epoch: bytes
    outcomes: tuple[Submitted, ...]


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A request with the entries that have no answer yet."""

    request_id: str
    refs: tuple[Ref, ...]


class Bell(NamedTuple):
    """A gateway's bell, of which `most` elements may be popped."""

    gateway: str
    most: int


class Collected(NamedTuple):
    """Replies that were ready, a list for each request that was asked for; and the requests `announced` meanwhile."""

    replies: list[list[bytes]]
    announced: list[str]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an outstanding request: replies to take, and for each entry whether it is in its stream."""

    replies: tuple[bytes, ...]
    present: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Pulse:
    """The state of a queue: inputs, tokens and entries, waiting or in flight; `pending` entries are claimed.

    `by_lane` are the entries of each lane, in the order of keys.LANES, and `oldest_by_lane` when the oldest was added.
    `memory_ratio` is the share of its maxmemory that Redis uses; 0 when it has none. `tenants` are
    those that have had something lately. `persists` is false if Redis failed when it last wrote its append-only file
    or its snapshot.
    """

    now_ms: int
    epoch: bytes
    inputs: int
    tokens: int
    by_lane: tuple[int, ...]
    pending: int
    oldest_by_lane: tuple[int | None, ...]
    last_heartbeat_ms: int
    workers: tuple[Heartbeat, ...]
    memory_ratio: float = 0.0
    tenants: Active = NOBODY_ACTIVE
    memory_bytes: int = 0
    dead_letters: int = 0
    open_jobs: int = 0
    owed_inputs: int = 0
    persists: bool = True

    @property
    def entries(self) -> int:
        """Entries of all lanes."""
        return sum(self.by_lane)

    @property
    def waiting(self) -> int:
        """Entries that no worker has claimed."""
        return max(0, self.entries - self.pending)

    @property
    def ages_ms(self) -> tuple[int, ...]:
        """How long the oldest entry of each lane has been there; 0 where there is none."""
        return tuple(0 if oldest is None else max(0, self.now_ms - oldest) for oldest in self.oldest_by_lane)

    @property
    def oldest_age_ms(self) -> int:
        """How long the oldest entry has been there; 0 when there is none."""
        return max(self.ages_ms)


async def submit(
    link: Link, keys: Keys, gateway: str, sequence: int, bound: Bound, submissions: Sequence[Submission]
) -> SubmitReply:
    """Adds the submissions, each whole or not at all; repeating a sequence number adds nothing and answers the same.

    Raises:
        RedisUnreachable: whether it was done is unknown; repeat it.
    """
    args: list[Argument] = [sequence, bound.inputs, bound.tokens, BULK_FILLS, SUBMITTED_TTL_MS, len(submissions)]
    for each in submissions:
        args += (each.lane, each.request_id, each.budget_ms, int(each.exempt), each.most_tokens)
        args += (each.bell, each.tenant, told(each.limits), each.traceparent, each.revision, len(each.drafts))
        for draft in each.drafts:
            args += (draft.position, draft.n, draft.cost, draft.body)
    names = [keys.backlog, keys.epoch, keys.submitted(gateway), keys.tenants, *keys.lanes]
    now_ms, epoch, results = await link.run(scripts.SUBMIT, names, args)
    outcomes = [_submitted(each, result) for each, result in zip(submissions, results, strict=True)]
    return SubmitReply(now_ms, epoch, tuple(outcomes))


def _submitted(submission: Submission, result: list[bytes]) -> Submitted:
    status, *ids = result
    if status == b"full":
        return Submitted("full", (), int(ids[0]))
    if status == b"slow":
        return Submitted("slow", (), int(ids[0]), tokens=int(ids[1]))
    if status == b"limited":
        return Submitted("limited", (), submission.lane, wait_ms=int(ids[0]))
    lane = BULK if status == b"behind" else submission.lane
    pairs = zip(submission.drafts, ids, strict=False)
    refs = tuple(Ref(lane, found, draft.n, draft.cost) for draft, found in pairs)
    return Submitted(status.decode(), refs, lane)


async def cancel(link: Link, keys: Keys, refs: Sequence[Ref], wake: Sequence[str], wake_ttl_ms: int = 1_000) -> int:
    """Takes entries back, wakes the waiters of the request ids in `wake`, and returns how many entries were there."""
    args: list[Argument] = [GROUP, len(LANES), wake_ttl_ms, len(refs)]
    for ref in refs:
        args += (ref.lane, ref.entry_id, ref.n, ref.cost)
    names = [keys.backlog, *keys.lanes, *(keys.reply(request_id) for request_id in wake)]
    gone: int = await link.run(scripts.CANCEL, names, args)
    return gone


async def collect(link: Link, keys: Keys, request_ids: Sequence[str], bell: Bell | None = None) -> Collected:
    """Pops all replies that are ready for some requests, and what a bell announces further.

    Plain commands, sent at once: in a script each would cost Redis more than twice as much.
    """
    commands = [("LPOP", keys.reply(each), MOST_REPLIES) for each in request_ids]
    if bell is not None:
        commands.append(("LPOP", keys.bell(bell.gateway), bell.most))
    popped = [each or [] for each in await link.call_all(commands)]
    rung = popped.pop() if bell is not None else []
    return Collected(popped, [each for element in rung for each in announced(element)])


def announced(element: bytes) -> list[str]:
    """Returns the ids of the requests that an element of a bell announces."""
    return element.decode("ascii", "replace").split(" ")


async def settle(link: Link, keys: Keys, requests: Sequence[Outstanding]) -> list[Settled]:
    """Returns what became of each request; its replies are popped by this."""
    args: list[Argument] = [len(LANES), len(requests)]
    for request in requests:
        args += (request.request_id, len(request.refs))
        for ref in request.refs:
            args += (ref.lane, ref.entry_id)
    names = [*keys.lanes, *(keys.reply(request.request_id) for request in requests)]
    results = await link.run(scripts.SETTLE, names, args)
    return [Settled(tuple(replies), tuple(bool(flag) for flag in flags)) for replies, flags in results]


async def pulse(link: Link, keys: Keys) -> Pulse:
    """Returns the state of the queue."""
    names = [keys.epoch, keys.workers, keys.backlog, keys.tenants, keys.dead, keys.jobs, keys.owed, *keys.lanes]
    now_ms, epoch, inputs, tokens, by_lane, pending, oldest, last, beats, used, most, *more = await link.run(
        scripts.PULSE, names, [GROUP, keys.worker(""), TENANT_ACTIVE_MS]
    )
    weights, named, dead, jobs, owed, failed = more
    return Pulse(
        *(now_ms, epoch, inputs, tokens, tuple(by_lane), pending, tuple(map(_added_ms, oldest)), last),
        workers=tuple(beat for beat in map(_heartbeat, beats) if beat is not None),
        memory_ratio=used / most if most else 0.0,
        tenants=Active(float(weights), float(named)),
        memory_bytes=used,
        dead_letters=dead,
        open_jobs=jobs,
        owed_inputs=owed,
        persists=not failed,
    )


def _added_ms(entry_id: bytes) -> int | None:
    found = re.match(rb"(\d+)-", entry_id)
    return int(found.group(1)) if found else None


async def queues(link: Link) -> list[str]:
    """Returns the queues that workers have announced lately, the latest first, as far as their names are such."""
    names = await link.call("ZREVRANGE", QUEUES, 0, MOST_QUEUES - 1)
    return [name for raw in names if re.fullmatch(QUEUE_PATTERN, name := raw.decode("ascii", "replace"))]


def _heartbeat(data: bytes) -> Heartbeat | None:
    """A heartbeat of another version may have other fields: those that are missing make it unreadable, more do not."""
    try:
        beat = _HEARTBEAT.validate_json(data)
    except ValidationError:
        return None
    return beat if math.isfinite(beat.tokens_per_s) and math.isfinite(beat.bulk_tokens_per_s) else None
