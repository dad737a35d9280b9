"""Takes requests through the queue: split, submit, wait, assemble."""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import suppress
from functools import partial

import structlog
from structlog.contextvars import bound_contextvars

from api import metrics
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.admission import ClusterState, Grace, admit, expiry_error, memory_full_error
from api.dispatch.charges import Charges
from api.dispatch.coalescer import CoalescedRequest, Coalescer
from api.dispatch.coalescing import CoalescingLoad
from api.dispatch.deadlines import Deadlines
from api.dispatch.fleet import find_gone
from api.dispatch.inflight import MAX_VALUES_BYTES, InFlight
from api.dispatch.monitor import Monitor, MonitorCallbacks
from api.dispatch.producer_spans import ProducerSpans
from api.dispatch.queue_bounds import bound_of_shard, check_fits
from api.dispatch.reconciler import Reconciler
from api.dispatch.replies import Replies
from api.dispatch.size_limits import BYTES_PER_NUMBER, UNKNOWN_DIM, check_input_sizes, check_output_size
from api.dispatch.splitting import build_result, split
from api.dispatch.submitter import PendingSubmit, SubmitCallbacks, Submitter
from api.memory_budget import HeldMemory
from api.settings import GatewaySettings
from shared.errors import RedisUnreachableError
from shared.keys import INTERACTIVE, LANES
from shared.messages import VECTOR_OPS
from shared.process.tasks import cancel_and_wait, run_forever
from shared.process.unexpected_replies import record_unexpected_reply
from shared.queue_connections import QueueConnections

log = structlog.get_logger()

FINAL_CANCEL_TIMEOUT_S = 1.0

LOST_AFTER_S = 1.0
"""A Redis that answers, but has refused all submits for this time, is lost to a queue that has others."""


class ShardLostError(RedisUnreachableError):
    """A shard is lost: the request may be sent to another one, with a new id. `was_accepted`: by this shard."""

    was_accepted = False


class Dispatcher:
    """Takes requests through one queue: everything in a gateway except HTTP.

    Args:
        settings: of the gateway.
        queue: name of the queue.
        spans: creates the spans of requests and jobs that go into the queue; None if requests are not traced.

    Attributes:
        gateway: this gateway's name in the queue.
        connections: those to the queue, closed by `stop`.
        charges: what tenants pay beside their submits, and get back.
    """

    def __init__(self, settings: GatewaySettings, queue: str, spans: ProducerSpans | None = None) -> None:
        self._limits = settings.queue_limits
        self._whole_bound = bound_of_shard(self._limits, 1)
        self._entry_limits = settings.entry_limits
        self.spans = spans
        self.gateway = secrets.token_hex(8)
        self.connections = QueueConnections(settings, queue, f"gateway:{self.gateway}", record_unexpected_reply)
        keys = self._keys = self.connections.keys
        self._requests: dict[str, InFlight] = {}
        self._num_waiting = [0 for _ in LANES]
        self._deadlines = Deadlines(self._expire)
        self._grace = Grace(settings.redis_grace_s, settings.worker_grace_s, settings.redis_memory_ratio)
        callbacks = MonitorCallbacks(self._on_loss, self._on_fleet)
        self.monitor = Monitor(self.connections, settings.worker_grace_s, callbacks)
        self.connections.home.watch(self.monitor.observe_move)
        self.charges = Charges(self.connections.connection("charge"), keys, self.monitor.limits)
        self._submitter = Submitter(
            self.connections.connection("submit"),
            keys,
            self.gateway,
            self._whole_bound,
            self._submit_callbacks(),
        )
        self._coalescer = Coalescer(
            self._entry_limits, self._coalescing_load, self._start_coalesced, self._end, self._submitter.wake
        )
        self._replies = Replies(
            [self.connections.connection(f"reply:{i}", identified=True) for i in range(1, settings.reply_connections)],
            self.connections.connection("reply:bell", identified=True),
            self.connections.connection("collect", identified=True),
            self._requests,
            lambda *broken: self._reconciler.reconcile_after_break(*broken),  # noqa: PLW0108 - set below
        )
        self._reconciler = Reconciler(self.connections, self._submitter, self._replies)
        self._tasks: list[asyncio.Task[None]] = []

    def _submit_callbacks(self) -> SubmitCallbacks:
        monitor, spans = self.monitor, self.spans
        return SubmitCallbacks(
            on_submitted=self._start_waiting if spans is None else partial(self._start_waiting_traced, spans),
            on_epoch=monitor.observe_epoch,
            on_stale=lambda request: self._reconciler.postpone(request),  # noqa: PLW0108 - set later
            full=monitor.full,
            slow=monitor.slow,
            max_tokens=monitor.max_tokens,
            limits=monitor.limits,
            before_submit=lambda: self._coalescer.flush(),  # noqa: PLW0108 - set later
        )

    async def start(self) -> None:
        """Polls the state of the queue once, then works in the background."""
        await self.monitor.poll()
        bell = partial(self._replies.run_bell, self._keys, self.gateway)
        monitor, deferred = self.monitor, self._replies.run_deferred
        follow = self.connections.follow_switches
        parts = (self._submitter.run, self.charges.run, bell, deferred, monitor.run, monitor.beat, follow)
        with bound_contextvars(**monitor.place):
            self._tasks = [asyncio.create_task(run_forever(part)) for part in parts]

    async def stop(self) -> None:
        """Stops the background work and closes the connections."""
        await cancel_and_wait(self._tasks)
        await self.monitor.stop()
        await self._replies.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_CANCEL_TIMEOUT_S):
                await self._submitter.flush_cancels()
        await self.connections.close()

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for an answer."""
        return sum(self._num_waiting)

    async def answer(
        self, request: InferenceRequest, request_id: str = "", memory: HeldMemory | None = None
    ) -> InferenceResult:
        """Returns the result of a request. If this call is cancelled, the request's entries are cancelled, too.

        Args:
            request: the client's request.
            request_id: id of its entries in Redis, which must be impossible to guess; "" to generate one.
            memory: what it holds of the gateway's; None: no bound.

        Raises:
            RedbatchError: the request was refused, expired or failed.
        """
        timeout_s, lane, loop = request.timeout_ms / 1000, request.lane, asyncio.get_running_loop()
        self._check_admitted(timeout_s, lane)
        now = loop.time()
        deadline = now + timeout_s
        self._num_waiting[lane] += 1
        try:
            if self._may_coalesce and (bounds := self._coalescer.bounds_for(request, now)) is not None:
                self._reserve_vectors(request, memory)
                result = await self._coalescer.answer(request, deadline, bounds)
                if result is not None:
                    return result
                self._check_admitted(deadline - loop.time(), lane)
                memory = None  # it has what the vectors take
            return await self._answer_by_itself(request, request_id, deadline, memory)
        finally:
            self._num_waiting[lane] -= 1

    async def _answer_by_itself(
        self, request: InferenceRequest, request_id: str, deadline: float, memory: HeldMemory | None
    ) -> InferenceResult:
        """Returns the result of a request with its own entries; raises as `answer` does."""
        if request.op not in VECTOR_OPS:
            request = check_input_sizes(request, self.monitor.workers())
            check_output_size(request, self.monitor.workers())
        new_entries, failures = split(request, self._entry_limits.max_inputs, self.monitor.max_input_tokens)
        if not new_entries:
            return InferenceResult(failures)
        check_fits(new_entries, request.lane, self._whole_bound)
        max_result_bytes = self._reserve_vectors(request, memory)
        request_id = request_id or secrets.token_hex(16)
        in_flight = InFlight(request_id, new_entries, deadline, request, memory, self._unify_revision)
        self._begin(in_flight, max_result_bytes)
        try:
            return build_result(await in_flight.answer, failures)
        finally:
            self._end(in_flight)

    @property
    def _may_coalesce(self) -> bool:
        """Whether requests may share entries: not while Redis does not answer, and not if they are traced."""
        return self.spans is None and self._submitter.retrying_since is None

    def _coalescing_load(self) -> CoalescingLoad:
        monitor, entries = self.monitor, self.monitor.long_entries
        num_waiting = self._num_waiting[INTERACTIVE]
        return CoalescingLoad(num_waiting, monitor.workers_per_shard, monitor.vector_bytes, *entries)

    def _start_coalesced(self, coalesced: CoalescedRequest) -> InFlight:
        """Sends several requests as one, whose memory they hold. Raises RequestError."""
        request, deadline, num_coalesced = coalesced
        new_entries, _ = split(request, self._entry_limits.max_inputs, self.monitor.max_input_tokens)
        in_flight = InFlight(secrets.token_hex(16), new_entries, deadline, request, None, self._unify_revision)
        in_flight.num_coalesced = num_coalesced
        self._begin(in_flight, len(request.inputs) * self.monitor.vector_bytes)
        return in_flight

    def _begin(self, request: InFlight, max_result_bytes: int) -> None:
        """Submits a request; `_end` has to follow."""
        self._requests[request.request_id] = request
        self._replies.reserve(request, max_result_bytes)
        if self.spans is not None:
            self.spans.begin(request)
        self._submitter.add(PendingSubmit(request, tuple(request.new_entries.values())))
        self._deadlines.add(request, request.deadline, asyncio.get_running_loop())

    def _check_admitted(self, timeout_s: float, lane: int) -> None:
        """Raises the error that refuses a request in the present state of Redis, the fleet and this gateway."""
        refusal = admit(self._cluster_state(), self._grace, timeout_s, random.random())  # noqa: S311 - spreads clients
        if refusal is None and self._backlog_full():
            refusal = self.monitor.full(lane)
        if refusal is not None:
            raise refusal

    def _reserve_vectors(self, request: InferenceRequest, memory: HeldMemory | None) -> int:
        """Reserves what the vectors will take: refused later, they would be computed in vain.

        Returns the maximum size of the results. Raises OverloadedError.
        """
        if request.op not in VECTOR_OPS:
            return MAX_VALUES_BYTES
        vector_bytes = self.monitor.vector_bytes
        size = len(request.inputs) * (vector_bytes or UNKNOWN_DIM * BYTES_PER_NUMBER)
        if memory is not None and not memory.grow(size):
            raise memory_full_error(random.random())  # noqa: S311 - spreads clients
        return size if vector_bytes else MAX_VALUES_BYTES

    def _backlog_full(self) -> bool:
        """Whether the gateway holds as much as the queue may, because Redis is slow or out of reach."""
        submitter, bound = self._submitter, self._submitter.bound
        return (
            submitter.waiting_inputs >= bound.inputs
            or submitter.waiting_tokens >= bound.tokens
            or submitter.waiting_bytes >= bound.bytes
        )

    def _cluster_state(self) -> ClusterState:
        """Returns the present state. Redis also counts as out of reach while it answers reads but refuses writes."""
        state = self.monitor.cluster()
        since = self._submitter.retrying_since
        if since is None:
            return state
        return state._replace(redis_down_s=max(state.redis_down_s, asyncio.get_running_loop().time() - since))

    @property
    def is_usable(self) -> bool:
        """Whether requests are answered soon: Redis answers, and a worker is ready."""
        return not self.missing() and self.monitor.num_ready > 0

    @property
    def is_lost(self) -> bool:
        """Whether the requests that wait should go to another, usable shard: its Redis or its last worker is gone."""
        # not while an engine restarts: an input that has killed it would kill the next one elsewhere
        since = self._submitter.retrying_since
        is_refused = since is not None and asyncio.get_running_loop().time() - since > LOST_AFTER_S
        return is_refused or self.monitor.is_down or bool(self.monitor.worker_unseen_s())

    @property
    def is_low_on_memory(self) -> bool:
        """Whether Redis uses more of its memory than `redis_memory_ratio` allows: it refuses requests and jobs."""
        return self.monitor.cluster().memory_ratio > self._grace.memory_ratio

    def silent_s(self) -> float:
        """Returns for how long Redis has answered nothing over any open connection, s."""
        return asyncio.get_running_loop().time() - self.connections.answered_at

    def share_bounds(self, num_shards: int) -> None:
        """Divides the bounds of the queue by the number of shards that have them together."""
        self._submitter.bound = bound_of_shard(self._limits, num_shards)
        self._submitter.is_bound_shared = num_shards > 1

    def abandon(self) -> None:
        """Ends all requests with ShardLostError. Their entries are cancelled as soon as Redis answers."""
        for request in list(self._requests.values()):
            error = ShardLostError("A shard of the queue is lost: try again.")
            error.was_accepted = request.submitted
            request.fail(error)

    def missing(self) -> list[str]:
        """Returns the parts whose absence keeps this gateway from answering: redis, worker."""
        is_refused = self._submitter.retrying_since is not None or self._replies.is_refused
        return ["redis"] if is_refused else self.monitor.missing()

    def _start_waiting(self, request: InFlight) -> None:
        self._replies.wait_for(request, self._keys)

    def _start_waiting_traced(self, spans: ProducerSpans, request: InFlight) -> None:
        spans.end(request)
        self._start_waiting(request)

    def _expire(self, request: InFlight) -> None:
        states = {each.state for each in self.monitor.workers()}
        jitter = random.random()  # noqa: S311 - spreads clients
        request.expire(expiry_error(self._cluster_state(), states, jitter, is_submitted=request.submitted))

    def _end(self, request: InFlight) -> None:
        """Removes a request, and cancels its entries that are still in the stream: no client waits for them."""
        self._deadlines.remove(request, request.deadline)
        del self._requests[request.request_id]
        request.close()
        self._submitter.drop(request)
        self.charges.refund(request.tenant, request.unrun_tokens)
        if refs := request.leftover_refs():
            self._submitter.cancel(refs, None if request.uses_bell else request.request_id)
        self._replies.release(request)

    def _unify_revision(self, request: InFlight) -> None:
        """Runs the entries again whose vectors are not of the most frequent revision that workers still serve."""
        counts, live = request.revisions(), self.monitor.revisions()
        candidates = [each for each, _ in counts.most_common() if each in live] or sorted(live) or list(counts)
        self._rerun_others(request, candidates[0])

    def _on_fleet(self) -> None:
        """Ends what waits for a model that does not load, or for a revision that no worker serves any more."""
        if self.monitor.does_not_load:
            for request in list(self._requests.values()):
                self._expire(request)
            return
        live = self.monitor.revisions()
        for request in list(self._requests.values()):
            if request.is_pinned:
                if (gone := find_gone(request.revision, self.monitor.workers())) is not None:
                    request.fail(gone)
            elif request.revision and live and request.revision not in live and not request.done:
                self._unify_revision(request)

    def _rerun_others(self, request: InFlight, revision: str) -> None:
        new_entries, old_refs = request.restrict_to_revision(revision)
        self._submitter.cancel(old_refs)
        if not new_entries:  # all are on their way into the stream: the submitter notices the change of revision
            return
        self._submitter.add(PendingSubmit(request, tuple(new_entries), exempt=True))
        metrics.MIXED_ENTRIES.inc(len(new_entries))
        log.info("a request met two model revisions: part of it runs again", entries=len(new_entries))

    async def _on_loss(self) -> None:
        await self._reconciler.reconcile(list(self._requests), cause="epoch")
