"""The gateway's operations on the queue: each script with typed arguments and a typed result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared import scripts
from shared.connection import Argument, RedisConnection
from shared.heartbeats import parse_heartbeat
from shared.keys import BULK, GROUP, INTERACTIVE, LANES, QUEUES, Keys
from shared.messages import MAX_TOKENS, Heartbeat, NewEntry, Ref
from shared.script_arguments import (
    CancelArguments,
    ReconcileArguments,
    ReconcileEntryRow,
    ReconcileRequestRow,
    SubmitArguments,
    SubmitRequestRow,
)
from shared.settings import QUEUE_PATTERN
from shared.tenants import (
    NO_ACTIVE_TENANTS,
    NO_WAIT,
    ActiveTenants,
    Limits,
    QuotaWait,
    encode_limits,
    parse_quota_wait,
)

SUBMITTED_TTL_MS = 360_000
"""Longer than any deadline: a submit may be repeated until then."""

MAX_BULK_SHARE = 0.5
"""Bulk may fill the queue up to this share of its bounds; the rest is reserved for interactive requests."""

TENANT_ACTIVE_MS = 2_000
"""A tenant without an accepted interactive request for this time has no share: the other tenants use it."""

MAX_REPLIES = 65_536
"""Maximum number of replies popped of a request at once: a request has one reply for each of its entries."""

MAX_QUEUES = 64
"""Maximum number of queues per gateway."""


@dataclass(frozen=True, slots=True)
class QueueBound:
    """Maximum content of the queue, for all gateways together."""

    inputs: int
    tokens: int = MAX_TOKENS
    bytes: int = MAX_TOKENS


class Submission(NamedTuple):
    """Entries of one request, ready for its lane.

    `budget_ms` is the time left until its deadline. `max_tokens` is the maximum of its lane, including this request:
    with more tokens in the lane the answer would come too late. `exempt` entries were accepted before and pass both
    bounds; a request with nothing queued ahead passes the second. An `epoch` is the one at which alone they are added,
    b"" if there was none. Those with a `revision` are for its workers only. `limits` apply to the `tenant`.
    """

    request_id: str
    new_entries: tuple[NewEntry, ...]
    budget_ms: int
    lane: int = INTERACTIVE
    exempt: bool = False
    bell: str = ""
    tenant: str = ""
    limits: Limits | None = None
    traceparent: str = ""
    max_tokens: int = MAX_TOKENS
    revision: str = ""
    num_coalesced: int = 1  # requests of clients that share it
    epoch: bytes | None = None


class SubmitOutcome(NamedTuple):
    """Outcome of a submission. `refs` holds one Ref per new entry if it is `ok` or `behind` (accepted into bulk).

    `late`: the deadline has passed. `full`: the `lane` is at its bound. `slow`: `tokens` are queued ahead in the
    `lane`, too many for its time. `limited`: the tenant may retry after a `wait`. `stale`: the queue has another epoch.
    """

    status: str
    refs: tuple[Ref, ...]
    lane: int = INTERACTIVE
    tokens: int = 0
    wait: QuotaWait = NO_WAIT


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """The result of one submit call: Redis' clock, the queue's epoch, and an outcome for each submission."""

    now_ms: int
    epoch: bytes
    outcomes: tuple[SubmitOutcome, ...]


@dataclass(frozen=True, slots=True)
class OutstandingRequest:
    """A request with its entries that have no answer yet."""

    request_id: str
    refs: tuple[Ref, ...]


class Bell(NamedTuple):
    """A gateway's bell, and the maximum number of elements to pop from it."""

    gateway: str
    max_elements: int


class CollectResult(NamedTuple):
    """Replies that were ready, a list for each request, and the `request_ids` that the bell announced."""

    replies: list[list[bytes]]
    request_ids: list[str]


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """State of an outstanding request: the popped replies, and for each entry whether it is in its stream."""

    replies: tuple[bytes, ...]
    present: tuple[bool, ...]


class ReconcileReply(NamedTuple):
    """The queue's epoch, empty without one, and the state of each request."""

    epoch: bytes
    results: list[ReconcileResult]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The state of a queue: inputs, tokens, bytes and entries, waiting or in flight; `pending` entries are claimed.

    `by_lane` counts the entries of each lane, in the order of keys.LANES, and `oldest_by_lane` is the time when the
    oldest was added (ms). `memory_ratio` is the share of its maxmemory that Redis uses; 0 without a maxmemory.
    `result_bytes` are those of the results of jobs, kept and expected.
    `tenants` are those with recently accepted requests. `persists` is false if Redis failed when it last wrote its
    append-only file or its snapshot. `eviction_policy` is its maxmemory-policy; "" if Redis does not report it.
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
    tenants: ActiveTenants = NO_ACTIVE_TENANTS
    memory_bytes: int = 0
    max_memory_bytes: int = 0
    dead_letters: int = 0
    open_jobs: int = 0
    owed_inputs: int = 0
    result_bytes: int = 0
    persists: bool = True
    bytes: int = 0
    eviction_policy: str = ""

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
        """Age of the oldest entry of each lane, ms; 0 for an empty lane."""
        return tuple(0 if oldest is None else max(0, self.now_ms - oldest) for oldest in self.oldest_by_lane)

    @property
    def oldest_age_ms(self) -> int:
        """Age of the oldest entry of all lanes, ms; 0 if there is none."""
        return max(self.ages_ms)


async def submit(
    connection: RedisConnection,
    keys: Keys,
    gateway: str,
    sequence: int,
    bound: QueueBound,
    submissions: Sequence[Submission],
) -> SubmitReply:
    """Adds the submissions, each whole or not at all. Repeating a sequence number adds nothing and returns the same.

    Raises:
        RedisUnreachableError: whether the submissions were added is unknown; repeat the call.
    """
    num = len(submissions)
    args: list[Argument] = [
        *SubmitArguments(sequence, bound.inputs, bound.tokens, bound.bytes, MAX_BULK_SHARE, SUBMITTED_TTL_MS, num)
    ]
    for each in submissions:
        limits = encode_limits(each.limits)
        args += SubmitRequestRow(  # by position, which takes half of the time of keywords
            each.lane,
            each.request_id,
            each.budget_ms,
            int(each.exempt),
            "any" if each.epoch is None else each.epoch,
            each.max_tokens,
            each.bell,
            each.tenant,
            limits,
            each.traceparent,
            each.revision,
            each.num_coalesced,
            len(each.new_entries),
        )
        for new_entry in each.new_entries:
            args += new_entry  # a NewEntry is the row
    names = [keys.backlog, keys.epoch, keys.submitted(gateway), keys.tenants, keys.owed, *keys.lanes]
    now_ms, epoch, results = await connection.run(scripts.SUBMIT, names, args)
    outcomes = [_submit_outcome(each, result) for each, result in zip(submissions, results, strict=True)]
    return SubmitReply(now_ms, epoch, tuple(outcomes))


def _submit_outcome(submission: Submission, result: list[Any]) -> SubmitOutcome:
    status, *values = result
    if status in {b"ok", b"behind"}:
        lane = BULK if status == b"behind" else submission.lane
        pairs = zip(submission.new_entries, values, strict=False)
        refs = tuple([Ref(lane, entry_id, each.n, each.cost, each.counted_bytes) for each, entry_id in pairs])
        return SubmitOutcome(status.decode(), refs, lane)
    if status == b"full":
        return SubmitOutcome("full", (), int(values[0]))
    if status == b"slow":
        return SubmitOutcome("slow", (), int(values[0]), tokens=int(values[1]))
    if status == b"limited":
        return SubmitOutcome("limited", (), submission.lane, wait=parse_quota_wait(*values))
    return SubmitOutcome(status.decode(), (), submission.lane)


async def cancel(
    connection: RedisConnection, keys: Keys, refs: Sequence[Ref], wake: Sequence[str], wake_ttl_ms: int = 1_000
) -> int:
    """Removes entries, wakes the waiters of the request ids in `wake`, and returns how many entries were removed."""
    args: list[Argument] = [*CancelArguments(GROUP, len(LANES), wake_ttl_ms, len(refs))]
    for ref in refs:
        args += ref  # a Ref is the row
    names = [keys.backlog, *keys.lanes, *(keys.reply(request_id) for request_id in wake)]
    num_removed: int = await connection.run(scripts.CANCEL, names, args)
    return num_removed


async def collect(
    connection: RedisConnection, keys: Keys, request_ids: Sequence[str], bell: Bell | None = None
) -> CollectResult:
    """Pops all replies that are ready for these requests, and the further requests that a bell announces.

    Sends plain commands, all at once: in a script each would cost Redis more than twice as much.
    """
    commands = [("LPOP", keys.reply(each), MAX_REPLIES) for each in request_ids]
    if bell is not None:
        commands.append(("LPOP", keys.bell(bell.gateway), bell.max_elements))
    popped = [each or [] for each in await connection.call_all(commands)]
    rung = popped.pop() if bell is not None else []
    return CollectResult(popped, [each for element in rung for each in parse_bell_element(element)])


async def collect_within(
    connection: RedisConnection, keys: Keys, request_ids: Sequence[str], max_bytes: int
) -> tuple[int, list[bytes]]:
    """Pops replies, up to the one with which they take `max_bytes`.

    Returns the number of requests, from the first on, of which all replies were popped that were ready; and the
    replies. There is at least one reply, unless none is ready.
    """
    names = [keys.reply(each) for each in request_ids]
    num_complete, *replies = await connection.run(scripts.COLLECT, names, [max_bytes])
    return num_complete, replies


def parse_bell_element(element: bytes) -> list[str]:
    """Returns the ids of the requests that an element of a bell announces."""
    return element.decode("ascii", "replace").split(" ")


async def reconcile(connection: RedisConnection, keys: Keys, requests: Sequence[OutstandingRequest]) -> ReconcileReply:
    """Returns the state of each request. Pops its replies."""
    args: list[Argument] = [*ReconcileArguments(len(LANES), len(requests))]
    for request in requests:
        args += ReconcileRequestRow(request.request_id, len(request.refs))
        for ref in request.refs:
            args += ReconcileEntryRow(ref.lane, ref.entry_id)
    names = [keys.epoch, *keys.lanes, *(keys.reply(request.request_id) for request in requests)]
    epoch, rows = await connection.run(scripts.RECONCILE, names, args)
    results = [ReconcileResult(tuple(replies), tuple(bool(flag) for flag in flags)) for replies, flags in rows]
    return ReconcileReply(epoch, results)


async def queue_stats(connection: RedisConnection, keys: Keys) -> QueueStats:
    """Returns the state of the queue."""
    names = [keys.epoch, keys.workers, keys.backlog, keys.tenants, keys.dead, keys.jobs, keys.owed, *keys.lanes]
    now_ms, epoch, inputs, tokens, by_lane, pending, oldest, last, beats, used, limit, *more = await connection.run(
        scripts.QUEUE_STATS, names, [GROUP, keys.worker(""), TENANT_ACTIVE_MS]
    )
    weights, named, dead, jobs, owed, failed, num_bytes, result_bytes, eviction_policy = more
    return QueueStats(
        *(now_ms, epoch, inputs, tokens, tuple(by_lane), pending, tuple(map(_added_ms, oldest)), last),
        workers=tuple(beat for beat in map(parse_heartbeat, beats) if beat is not None),
        memory_ratio=used / limit if limit else 0.0,
        tenants=ActiveTenants(float(weights), float(named)),
        memory_bytes=used,
        max_memory_bytes=limit,
        dead_letters=dead,
        open_jobs=jobs,
        owed_inputs=owed,
        result_bytes=result_bytes,
        persists=not failed,
        bytes=num_bytes,
        eviction_policy=eviction_policy.decode("ascii", "replace"),
    )


def _added_ms(entry_id: bytes) -> int | None:
    match = re.match(rb"(\d+)-", entry_id)
    return int(match.group(1)) if match else None


async def list_queues(connection: RedisConnection) -> list[str]:
    """Returns the queues that workers announced recently, the latest first. Invalid names are left out."""
    names = await connection.call("ZREVRANGE", QUEUES, 0, MAX_QUEUES - 1)
    return [name for raw in names if re.fullmatch(QUEUE_PATTERN, name := raw.decode("ascii", "replace"))]
