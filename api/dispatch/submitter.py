"""Submits and cancels: all requests of one tick of the event loop go to Redis in one script call.

One submit is under way at a time, and it has a sequence number. If its answer is lost, it is repeated with the same
number, and Redis returns the same answer: each entry is added once, and its id is always known in the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from api import metrics
from api.dispatch.admission import quota_error
from api.dispatch.inflight import InFlight
from api.dispatch.queue_bounds import fitting_bound
from api.tenants import Tenant
from shared import producer
from shared.connection import RedisConnection
from shared.errors import DeadlineExceededError, InternalError, RedbatchError, RedisUnreachableError
from shared.keys import Keys
from shared.messages import NewEntry, Ref
from shared.process.backoff import Backoff
from shared.process.unexpected_replies import record_failing_call
from shared.producer import QueueBound, Submission, SubmitOutcome, SubmitReply
from shared.redis_errors import UnexpectedReplyError
from shared.tenants import Limits

log = structlog.get_logger()

MAX_REQUESTS = 256
MAX_BYTES = 4 * 2**20
"""Bounds of one script call: number of requests, and bytes of their bodies."""

RETRY_MIN_S = 0.02
RETRY_MAX_S = 0.5


@dataclass(slots=True, eq=False)
class PendingSubmit:
    """Entries of a request that are to be added. `exempt` entries were accepted before.

    If they were lost, `epoch` is that of the reconcile that missed them: at another one they are not added.

    Attributes:
        revision: the request's revision when this was created.
        inputs, tokens: number of inputs, and their estimated tokens.
        size: bytes of all bodies.
        counted_bytes: those that count against the queue's bound in bytes.
    """

    request: InFlight
    new_entries: tuple[NewEntry, ...]
    exempt: bool = False
    epoch: bytes | None = None
    revision: str = field(init=False)
    inputs: int = field(init=False)
    tokens: int = field(init=False)
    size: int = field(init=False)
    counted_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.revision = self.request.revision
        self.inputs = self.tokens = self.size = self.counted_bytes = 0
        for entry in self.new_entries:  # once: a sum of each would take three times as long for a single entry
            self.inputs += entry.n
            self.tokens += entry.cost
            self.size += len(entry.body)
            self.counted_bytes += entry.counted_bytes


@dataclass(frozen=True, slots=True)
class SubmitCallbacks:
    """Callbacks: `on_submitted` for each request in the stream, `on_epoch` with the queue's epoch after each submit.

    `on_stale` takes a request with lost entries that were not added, as Redis has another epoch than the reconcile saw.
    `full` and `slow` build the error for a request that its lane rejected: `full` takes the lane, `slow` the lane and
    the tokens above the limit. `max_tokens` returns the token limit of a lane for a request with a time budget (s),
    tokens and inputs, and `limits` the limits of a tenant for a time budget (s). `before_submit` may add entries.
    """

    on_submitted: Callable[[InFlight], None]
    on_epoch: Callable[[bytes], None]
    on_stale: Callable[[InFlight], None]
    full: Callable[[int], RedbatchError]
    slow: Callable[[int, int], RedbatchError]
    max_tokens: Callable[[int, float, int, int], int]
    limits: Callable[[Tenant, float], Limits | None]
    before_submit: Callable[[], None]


class Submitter:
    """Adds entries to the stream, and cancels them.

    Args:
        connection: used only by the submitter.
        keys: Redis keys of the queue.
        gateway: this gateway's name.
        bound: maximum content of the queue.
        callbacks: what to call after a submit, and what limits it.

    Attributes:
        bound: as above; it may change.
        is_bound_shared: whether it is only a part of the bound of the queue, which has other shards.
        retrying_since: when Redis first did not answer the submit that is under way (event loop's clock), or None.
        waiting_inputs, waiting_tokens, waiting_bytes: those of the requests whose submit has not started.
    """

    def __init__(
        self, connection: RedisConnection, keys: Keys, gateway: str, bound: QueueBound, callbacks: SubmitCallbacks
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._gateway, self._bell = gateway, keys.bell(gateway)
        self.bound, self.is_bound_shared = bound, False
        self._callbacks = callbacks
        self._pending: list[PendingSubmit] = []
        self._refs_to_cancel: list[Ref] = []
        self._waiters_to_wake: list[str] = []
        self._wake = asyncio.Event()
        self._sequence = 0
        self.retrying_since: float | None = None
        self.waiting_inputs = self.waiting_tokens = self.waiting_bytes = 0

    def add(self, pending: PendingSubmit) -> None:
        """Adds entries with the next submit."""
        self._pending.append(pending)
        self._count(pending, 1)
        self._wake.set()

    def wake(self) -> None:
        """Submits soon what `before_submit` adds."""
        self._wake.set()

    def drop(self, request: InFlight) -> None:
        """Drops entries that no client waits for, while Redis does not answer: otherwise they go out in a moment."""
        if self.retrying_since is not None and not request.submitted:
            for pending in [each for each in self._pending if each.request is request]:
                self._pending.remove(pending)
                self._count(pending, -1)

    def cancel(self, refs: Iterable[Ref], waiter: str | None = None) -> None:
        """Cancels entries soon; the waiter of the request id `waiter` is woken, so that it is free at once."""
        self._refs_to_cancel += refs
        if waiter is not None:
            self._waiters_to_wake.append(waiter)
        self._wake.set()

    async def run(self) -> None:
        """Submits and cancels until cancelled."""
        while True:
            backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
            self._wake.clear()
            self._callbacks.before_submit()
            # Submits and cancels alternate: under load there are always new requests, and cancels would never run.
            while self._pending or self._refs_to_cancel or self._waiters_to_wake:
                await self._submit(self._next_batch())
                if await self.flush_cancels():
                    backoff.reset()
                else:
                    await backoff.wait()
                self._callbacks.before_submit()
            await self._wake.wait()

    def _count(self, pending: PendingSubmit, sign: int) -> None:
        self.waiting_inputs += sign * pending.inputs
        self.waiting_tokens += sign * pending.tokens
        self.waiting_bytes += sign * pending.counted_bytes

    def _next_batch(self) -> list[PendingSubmit]:
        size = count = 0
        for pending in self._pending[:MAX_REQUESTS]:
            size += pending.size
            if count and size > MAX_BYTES:
                break
            count += 1
        batch, self._pending = self._pending[:count], self._pending[count:]
        for pending in batch:
            self._count(pending, -1)
        return [pending for pending in batch if not pending.request.done]

    async def _submit(self, batch: Sequence[PendingSubmit]) -> None:
        if not batch:
            return
        self._sequence += 1
        try:
            reply = await self._retry_submit(batch)
        except UnexpectedReplyError:
            await self._submit_separately(batch)
            return
        except Exception as error:
            self.retrying_since = None  # Redis has answered, if with an error: the next submit may succeed
            log.exception("submit failed", requests=len(batch))
            for pending in batch:
                pending.request.fail(InternalError(f"Redis refused the request ({type(error).__name__})."))
            return
        self._callbacks.on_epoch(reply.epoch)
        num_inputs = 0
        for pending, outcome in zip(batch, reply.outcomes, strict=True):
            self._apply_outcome(pending, outcome)
            if outcome.refs and not pending.exempt:
                num_inputs += 0 if pending.request.was_accepted else pending.inputs
            elif outcome.refs and pending.epoch is not None:
                metrics.RESUBMITTED_ENTRIES.inc(len(outcome.refs))
        metrics.REQUEST_INPUTS.inc(num_inputs)

    async def _submit_separately(self, batch: Sequence[PendingSubmit]) -> None:
        """Submits requests of which at least one makes Redis fail; refuses that one."""
        if len(batch) == 1:
            request, message = batch[0].request, "Redis fails on this request: the gateway's log says how."
            is_shared = request.num_coalesced > 1  # after an InternalError, each of its requests is sent by itself
            request.fail(InternalError(message) if is_shared else RedisUnreachableError(message))
            return
        middle = len(batch) // 2
        for part in (batch[:middle], batch[middle:]):
            await self._submit(part)

    async def _retry_submit(self, batch: Sequence[PendingSubmit]) -> SubmitReply:
        """Repeats one submit until Redis has answered. Redis adds no entry whose deadline has passed by then.

        Raises:
            UnexpectedReplyError: Redis fails on this submit, but not on one without requests.
        """
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            now = asyncio.get_running_loop().time()
            submissions = [self._submission(pending, now) for pending in batch]
            try:
                reply = await self._call_submit(submissions)
            except RedisUnreachableError as error:
                self.retrying_since = self.retrying_since or now
                log.debug("submit is repeated", reason=error.log_message)
                if isinstance(error, UnexpectedReplyError):
                    record_failing_call("Redis fails on a submit", error)
                    if await self._takes_submits():
                        self.retrying_since = None
                        raise
            else:
                self.retrying_since = None
                return reply
            await backoff.wait()

    async def _takes_submits(self) -> bool:
        """Whether Redis takes a submit without requests; if it does, the sequence number of the last one is used up."""
        self._sequence += 1
        with suppress(RedisUnreachableError):
            await self._call_submit([])
            return True
        self._sequence -= 1
        return False

    async def _call_submit(self, submissions: Sequence[Submission]) -> SubmitReply:
        bound = fitting_bound(self.bound, submissions) if self.is_bound_shared else self.bound
        return await producer.submit(self._connection, self._keys, self._gateway, self._sequence, bound, submissions)

    def _submission(self, pending: PendingSubmit, now: float) -> Submission:
        request = pending.request
        budget_s = 0.0 if request.done else request.deadline - now
        return Submission(
            request.request_id,
            pending.new_entries,
            int(budget_s * 1000),
            request.lane,
            exempt=pending.exempt,
            bell=self._bell if request.uses_bell else "",
            max_tokens=self._callbacks.max_tokens(request.lane, budget_s, pending.tokens, pending.inputs),
            revision=pending.revision,
            tenant=request.tenant.name,
            traceparent=request.traceparent,
            limits=self._callbacks.limits(request.tenant, budget_s),
            num_coalesced=request.num_coalesced,
            epoch=pending.epoch,
        )

    def _apply_outcome(self, pending: PendingSubmit, outcome: SubmitOutcome) -> None:
        request = pending.request
        if outcome.status not in ("ok", "behind", "stale"):
            request.fail(self._refusal(pending, outcome))
            return
        if outcome.status == "behind":
            metrics.BEHIND_REQUESTS.inc()
            request.lane = outcome.lane  # also for entries that are added again
        if pending.revision != request.revision and not request.done:  # the request has changed its revision since
            self.cancel(outcome.refs)
            if remaining := tuple(entry for entry in pending.new_entries if request.is_unplaced(entry.position)):
                self.add(PendingSubmit(request, remaining, exempt=True))
            return
        if outcome.status == "stale":
            for entry in pending.new_entries:
                request.restore_lost(entry.position)
            self._callbacks.on_stale(request)
            return
        for entry, ref in zip(pending.new_entries, outcome.refs, strict=False):
            request.place(entry.position, ref)
        if request.done:  # it was answered, its client left, or its deadline passed during the submit
            self.cancel(outcome.refs)
        else:
            self._callbacks.on_submitted(request)

    def _refusal(self, pending: PendingSubmit, outcome: SubmitOutcome) -> RedbatchError:
        if outcome.status == "full":
            return self._callbacks.full(outcome.lane)
        if outcome.status == "slow":
            return self._callbacks.slow(outcome.lane, self._excess(pending, outcome))
        if outcome.status == "limited":
            jitter = random.random()  # noqa: S311 - spreads clients
            return quota_error(pending.tokens, pending.request.tenant.quota, outcome.wait, jitter)
        return DeadlineExceededError("The deadline passed before the request reached the queue: allow more time.")

    def _excess(self, pending: PendingSubmit, outcome: SubmitOutcome) -> int:
        """Returns how many queued tokens must be processed before a `slow` submit fits."""
        left_s = pending.request.deadline - asyncio.get_running_loop().time()
        allowed = self._callbacks.max_tokens(outcome.lane, left_s, pending.tokens, pending.inputs)
        excess = outcome.tokens + pending.tokens - allowed
        return min(outcome.tokens, max(0, excess))

    async def flush_cancels(self) -> bool:
        """Cancels the entries that no request waits for; returns False if Redis did not.

        They are then still to be cancelled, and so they are if this call is cancelled. To cancel an entry twice does
        no harm. If Redis fails on them, they are dropped: it would fail again, and delay all later submits and cancels.
        """
        refs, self._refs_to_cancel = self._refs_to_cancel, []
        waiters, self._waiters_to_wake = self._waiters_to_wake, []
        if not refs and not waiters:
            return True
        try:
            cancelled = await producer.cancel(self._connection, self._keys, refs, waiters)
        except UnexpectedReplyError as error:
            record_failing_call("Redis fails on a cancel", error)
            return False
        except (RedisUnreachableError, asyncio.CancelledError) as error:
            self._refs_to_cancel += refs
            self._waiters_to_wake += waiters
            if isinstance(error, asyncio.CancelledError):
                raise
            log.debug("cancel is repeated", reason=error.log_message)
            return False
        metrics.CANCELLED_ENTRIES.inc(cancelled)
        return True
