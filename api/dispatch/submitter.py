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
from api.dispatch.admission import limited
from api.dispatch.inflight import InFlight
from api.tenants import Tenant
from shared import producer
from shared.errors import DeadlineExceeded, InternalError, RedbatchError, RedisUnreachable
from shared.keys import Keys
from shared.messages import Draft, Ref
from shared.connection import Link
from shared.producer import Bound, Submission, SubmitReply, Submitted
from shared.tenants import Limits

log = structlog.get_logger()

MOST_REQUESTS = 256
MOST_BYTES = 4 * 2**20
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 0.5


@dataclass(slots=True, eq=False)
class Order:
    """Some entries of a request, to be added. `exempt` ones were accepted before and were lost.

    Attributes:
        revision: that of the request when this was made.
        inputs, tokens: number of inputs, and their estimated tokens.
        size: bytes of all bodies.
    """

    request: InFlight
    drafts: tuple[Draft, ...]
    exempt: bool = False
    revision: str = field(init=False)
    inputs: int = field(init=False)
    tokens: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.revision = self.request.revision
        self.inputs = sum([draft.n for draft in self.drafts])
        self.tokens = sum([draft.cost for draft in self.drafts])
        self.size = sum([len(draft.body) for draft in self.drafts])


@dataclass(frozen=True, slots=True)
class Told:
    """Who is told what came of a submit: of each request in the stream, and of the queue's epoch.

    Of a lane: `full` returns the error for a request that did not fit, `slow` that for one with so many tokens too many
    before it; `most_tokens` says how many may be there with a request that has so much time (s). `limits` says what a
    tenant is held to whose request has so much time.
    """

    submitted: Callable[[InFlight], None]
    epoch: Callable[[bytes], None]
    full: Callable[[int], RedbatchError]
    slow: Callable[[int, int], RedbatchError]
    most_tokens: Callable[[int, float], int]
    limits: Callable[[Tenant, float], Limits | None]


class Submitter:
    """The way of requests into Redis.

    Args:
        link: a connection of its own.
        keys: the queue.
        gateway: this gateway's name.
        bound: what the queue may hold.
        told: who is told what came of it.

    Attributes:
        repeating_since: when Redis first did not answer the submit that is under way (event loop's clock), or None.
        waiting_inputs, waiting_tokens: of the requests whose submit has not begun.
    """

    def __init__(self, link: Link, keys: Keys, gateway: str, bound: Bound, told: Told) -> None:
        self._link = link
        self._keys = keys
        self._gateway = gateway
        self._bound = bound
        self._told = told
        self._orders: list[Order] = []
        self._cancelled: list[Ref] = []
        self._wake_keys: list[str] = []
        self._wake = asyncio.Event()
        self._sequence = 0
        self.repeating_since: float | None = None
        self.waiting_inputs = self.waiting_tokens = 0

    def add(self, order: Order) -> None:
        """Submits soon."""
        self._orders.append(order)
        self.waiting_inputs += order.inputs
        self.waiting_tokens += order.tokens
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
            pause = RETRY_FIRST_S
            while self._orders or self._cancelled or self._wake_keys:  # in turns: new requests never cease under load
                await self._submit(self._next_orders())
                if await self.flush_cancels():
                    pause = RETRY_FIRST_S
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, RETRY_MOST_S)
            self._wake.clear()
            await self._wake.wait()

    def _next_orders(self) -> list[Order]:
        size = count = 0
        for order in self._orders[:MOST_REQUESTS]:
            size += order.size
            if count and size > MOST_BYTES:
                break
            count += 1
        taken, self._orders = self._orders[:count], self._orders[count:]
        self.waiting_inputs -= sum(order.inputs for order in taken)
        self.waiting_tokens -= sum(order.tokens for order in taken)
        return [order for order in taken if not order.request.done]

    async def _submit(self, orders: Sequence[Order]) -> None:
        if not orders:
            return
        self._sequence += 1
        try:
            reply = await self._until_answered(orders)
        except Exception as error:
            self.repeating_since = None  # it is an answer, if not one to expect: the next request may find another
            log.exception("submit failed", requests=len(orders))
            for order in orders:
                order.request.fail(InternalError(f"Redis refused the request ({type(error).__name__})."))
            return
        self._told.epoch(reply.epoch)
        for order, outcome in zip(orders, reply.outcomes, strict=True):
            self._settle_order(order, outcome)

    async def _until_answered(self, orders: Sequence[Order]) -> SubmitReply:
        """Repeats one submit until Redis has answered. What is too late by then, Redis does not add."""
        pause = RETRY_FIRST_S
        while True:
            now = asyncio.get_running_loop().time()
            submissions = [self._submission(order, now) for order in orders]
            try:
                reply = await producer.submit(
                    self._link, self._keys, self._gateway, self._sequence, self._bound, submissions
                )
            except RedisUnreachable as error:
                self.repeating_since = self.repeating_since or now
                log.debug("submit is repeated", reason=error.message)
            else:
                self.repeating_since = None
                return reply
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_MOST_S)

    def _submission(self, order: Order, now: float) -> Submission:
        request = order.request
        budget_s = 0.0 if request.done else request.deadline - now
        return Submission(
            request.request_id,
            order.drafts,
            int(budget_s * 1000),
            request.lane,
            exempt=order.exempt,
            bell=self._keys.bell(self._gateway) if request.rings else "",
            most_tokens=self._told.most_tokens(request.lane, budget_s),
            revision=order.revision,
            tenant=request.tenant.name,
            traceparent=request.traceparent,
            limits=self._told.limits(request.tenant, budget_s),
        )

    def _settle_order(self, order: Order, outcome: Submitted) -> None:
        request = order.request
        if outcome.status not in ("ok", "behind"):
            request.fail(self._refusal(order, outcome))
            return
        if outcome.status == "behind":
            metrics.BEHIND.inc()
            request.lane = outcome.lane  # also for what is added again
        if order.revision != request.revision and not request.done:  # that one is gone since
            self.cancel(outcome.refs)
            if again := tuple(draft for draft in order.drafts if request.misses(draft.position)):
                self.add(Order(request, again, exempt=True))
            return
        for draft, ref in zip(order.drafts, outcome.refs, strict=False):
            request.place(draft.position, ref)
        if not order.exempt:
            metrics.REQUEST_INPUTS.inc(order.inputs)
        if request.done:  # it was answered, its client left, or its deadline passed, while the submit was under way
            self.cancel(outcome.refs)
        else:
            self._told.submitted(request)

    def _refusal(self, order: Order, outcome: Submitted) -> RedbatchError:
        if outcome.status == "full":
            return self._told.full(outcome.lane)
        if outcome.status == "slow":
            return self._told.slow(outcome.lane, self._excess(order, outcome))
        if outcome.status == "limited":
            return limited(outcome.wait_ms, random.random())  # noqa: S311 - spreads clients
        return DeadlineExceeded("The deadline passed before the request reached the queue.")

    def _excess(self, order: Order, outcome: Submitted) -> int:
        """Returns how many tokens must be done before an order fits that was too slow."""
        left_s = order.request.deadline - asyncio.get_running_loop().time()
        over = outcome.tokens + order.tokens - self._told.most_tokens(outcome.lane, left_s)
        return min(outcome.tokens, max(0, over))

    async def flush_cancels(self) -> bool:
        """Takes back what nobody waits for; returns False when Redis did not answer, and it is still to be done.

        It is still to be done as well when this call is cancelled. To take something back twice does no harm.
        """
        refs, self._cancelled = self._cancelled, []
        wake, self._wake_keys = self._wake_keys, []
        if not refs and not wake:
            return True
        try:
            gone = await producer.cancel(self._link, self._keys, refs, wake)
        except (RedisUnreachable, asyncio.CancelledError) as error:
            self._cancelled += refs
            self._wake_keys += wake
            if isinstance(error, asyncio.CancelledError):
                raise
            log.debug("cancel is repeated", reason=error.message)
            return False
        metrics.CANCELLED.inc(gone)
        return True
