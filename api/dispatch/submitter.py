"""Submits and cancels: all that one tick of the event loop brings goes to Redis in one script call.

One submit is under way at a time, numbered. When its answer is lost it is repeated under the same number, and Redis
answers what it answered before: so each entry is added once, and its id is always known in the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from api import metrics
from api.dispatch.admission import rate_limited_error
from api.dispatch.inflight import InFlight
from api.tenants import Tenant
from shared import producer
from shared.connection import RedisConnection
from shared.errors import DeadlineExceededError, InternalError, RedbatchError, RedisUnreachableError
from shared.keys import Keys
from shared.messages import NewEntry, Ref
from shared.process.backoff import Backoff
from shared.producer import QueueBound, Submission, SubmitOutcome, SubmitReply
from shared.tenants import Limits

log = structlog.get_logger()

MAX_REQUESTS = 256
MAX_BYTES = 4 * 2**20
FIRST_RETRY_S = 0.02
MAX_RETRY_S = 0.5


@dataclass(slots=True, eq=False)
class PendingSubmit:
    """Some entries of a request, to be added. `exempt` ones were accepted before and were lost.

    Attributes:
        revision: that of the request when this was made.
        inputs, tokens: number of inputs, and their estimated tokens.
        size: bytes of all bodies.
    """

    request: InFlight
    new_entries: tuple[NewEntry, ...]
    exempt: bool = False
    revision: str = field(init=False)
    inputs: int = field(init=False)
    tokens: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.revision = self.request.revision
        self.inputs = sum([new_entry.n for new_entry in self.new_entries])
        self.tokens = sum([new_entry.cost for new_entry in self.new_entries])
        self.size = sum([len(new_entry.body) for new_entry in self.new_entries])


@dataclass(frozen=True, slots=True)
class SubmitCallbacks:
    """Who is told what came of a submit: of each request in the stream, and of the queue's epoch.

    Of a lane: `full` returns the error for a request that did not fit, `slow` that for one with so many tokens too many
    before it; `max_tokens` says how many may be there with a request that has so much time (s). `limits` says what a
    tenant is held to whose request has so much time.
    """

    submitted: Callable[[InFlight], None]
    epoch: Callable[[bytes], None]
    full: Callable[[int], RedbatchError]
    slow: Callable[[int, int], RedbatchError]
    max_tokens: Callable[[int, float], int]
    limits: Callable[[Tenant, float], Limits | None]


class Submitter:
    """The way of requests into Redis.

    Args:
        connection: a connection of its own.
        keys: the queue.
        gateway: this gateway's name.
        bound: what the queue may hold.
        told: who is told what came of it.

    Attributes:
        repeating_since: when Redis first did not answer the submit that is under way (event loop's clock), or None.
        waiting_inputs, waiting_tokens: of the requests whose submit has not begun.
    """

    def __init__(
        self, connection: RedisConnection, keys: Keys, gateway: str, bound: QueueBound, callbacks: SubmitCallbacks
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._gateway = gateway
        self._bound = bound
        self._callbacks = callbacks
        self._pending: list[PendingSubmit] = []
        self._cancelled: list[Ref] = []
        self._wake_keys: list[str] = []
        self._wake = asyncio.Event()
        self._sequence = 0
        self.retrying_since: float | None = None
        self.waiting_inputs = self.waiting_tokens = 0

    def add(self, pending: PendingSubmit) -> None:
        """Submits soon."""
        self._pending.append(pending)
        self.waiting_inputs += pending.inputs
        self.waiting_tokens += pending.tokens
        self._wake.set()

    def cancel(self, refs: Iterable[Ref], waiter: str | None = None) -> None:
        """Takes entries back soon; the `waiter` of that request id is woken, to be free at once."""
        self._cancelled += refs
        if waiter is not None:
            self._wake_keys.append(waiter)
        self._wake.set()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            backoff = Backoff(FIRST_RETRY_S, MAX_RETRY_S)
            while self._pending or self._cancelled or self._wake_keys:  # in turns: new requests never cease under load
                await self._submit(self._next_batch())
                if await self.flush_cancels():
                    backoff.reset()
                else:
                    await backoff.wait()
            self._wake.clear()
            await self._wake.wait()

    def _next_batch(self) -> list[PendingSubmit]:
        size = count = 0
        for pending in self._pending[:MAX_REQUESTS]:
            size += pending.size
            if count and size > MAX_BYTES:
                break
            count += 1
        batch, self._pending = self._pending[:count], self._pending[count:]
        self.waiting_inputs -= sum(pending.inputs for pending in batch)
        self.waiting_tokens -= sum(pending.tokens for pending in batch)
        return [pending for pending in batch if not pending.request.done]

    async def _submit(self, batch: Sequence[PendingSubmit]) -> None:
        if not batch:
            return
        self._sequence += 1
        try:
            reply = await self._retry_submit(batch)
        except Exception as error:
            self.retrying_since = None  # it is an answer, if not one to expect: the next request may find another
            log.exception("submit failed", requests=len(batch))
            for pending in batch:
                pending.request.fail(InternalError(f"Redis refused the request ({type(error).__name__})."))
            return
        self._callbacks.epoch(reply.epoch)
        for pending, outcome in zip(batch, reply.outcomes, strict=True):
            self._apply_outcome(pending, outcome)

    async def _retry_submit(self, batch: Sequence[PendingSubmit]) -> SubmitReply:
        """Repeats one submit until Redis has answered. What is too late by then, Redis does not add."""
        backoff = Backoff(FIRST_RETRY_S, MAX_RETRY_S)
        while True:
            now = asyncio.get_running_loop().time()
            submissions = [self._submission(pending, now) for pending in batch]
            try:
                reply = await producer.submit(
                    self._connection, self._keys, self._gateway, self._sequence, self._bound, submissions
                )
            except RedisUnreachableError as error:
                self.retrying_since = self.retrying_since or now
                log.debug("submit is repeated", reason=error.message)
            else:
                self.retrying_since = None
                return reply
            await backoff.wait()

    def _submission(self, pending: PendingSubmit, now: float) -> Submission:
        request = pending.request
        budget_s = 0.0 if request.done else request.deadline - now
        return Submission(
            request.request_id,
            pending.new_entries,
            int(budget_s * 1000),
            request.lane,
            exempt=pending.exempt,
            bell=self._keys.bell(self._gateway) if request.uses_bell else "",
            max_tokens=self._callbacks.max_tokens(request.lane, budget_s),
            revision=pending.revision,
            tenant=request.tenant.name,
            traceparent=request.traceparent,
            limits=self._callbacks.limits(request.tenant, budget_s),
        )

    def _apply_outcome(self, pending: PendingSubmit, outcome: SubmitOutcome) -> None:
        request = pending.request
        if outcome.status not in ("ok", "behind"):
            request.fail(self._refusal(pending, outcome))
            return
        if outcome.status == "behind":
            metrics.BEHIND_REQUESTS.inc()
            request.lane = outcome.lane  # also for what is added again
        if pending.revision != request.revision and not request.done:  # that one is gone since
            self.cancel(outcome.refs)
            if remaining := tuple(new_entry for new_entry in pending.new_entries if request.is_unplaced(new_entry.position)):
                self.add(PendingSubmit(request, remaining, exempt=True))
            return
        for new_entry, ref in zip(pending.new_entries, outcome.refs, strict=False):
            request.place(new_entry.position, ref)
        if not pending.exempt:
            metrics.REQUEST_INPUTS.inc(pending.inputs)
        if request.done:  # it was answered, its client left, or its deadline passed, while the submit was under way
            self.cancel(outcome.refs)
        else:
            self._callbacks.submitted(request)

    def _refusal(self, pending: PendingSubmit, outcome: SubmitOutcome) -> RedbatchError:
        if outcome.status == "full":
            return self._callbacks.full(outcome.lane)
        if outcome.status == "slow":
            return self._callbacks.slow(outcome.lane, self._excess(pending, outcome))
        if outcome.status == "limited":
            return rate_limited_error(outcome.wait_ms, random.random())  # noqa: S311 - spreads clients
        return DeadlineExceededError("The deadline passed before the request reached the queue.")

    def _excess(self, pending: PendingSubmit, outcome: SubmitOutcome) -> int:
        """Returns how many tokens must be done before an order fits that was too slow."""
        left_s = pending.request.deadline - asyncio.get_running_loop().time()
        excess = outcome.tokens + pending.tokens - self._callbacks.max_tokens(outcome.lane, left_s)
        return min(outcome.tokens, max(0, excess))

    async def flush_cancels(self) -> bool:
        """Takes back what nobody waits for; returns False when Redis did not answer, and it is still to be done.

        It is still to be done as well when this call is cancelled. To take something back twice does no harm.
        """
        refs, self._cancelled = self._cancelled, []
        wake_keys, self._wake_keys = self._wake_keys, []
        if not refs and not wake_keys:
            return True
        try:
            cancelled = await producer.cancel(self._connection, self._keys, refs, wake_keys)
        except (RedisUnreachableError, asyncio.CancelledError) as error:
            self._cancelled += refs
            self._wake_keys += wake_keys
            if isinstance(error, asyncio.CancelledError):
                raise
            log.debug("cancel is repeated", reason=error.message)
            return False
        metrics.CANCELLED_ENTRIES.inc(cancelled)
        return True
