"""Takes requests through the queue: split, submit, wait, put together."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog

from api import metrics
from api.dispatch.admission import Cluster, Grace, admit, redis_away
from api.dialects.request import Asked
from api.dispatch.splitting import check_output, split
from api.dispatch.inflight import InFlight
from api.dispatch.monitor import Monitor, Seen
from api.dispatch.replies import Replies
from api.settings import GatewaySettings
from api.dispatch.reconciler import Settler
from api.dispatch.submitter import Order, Submitter, Told
from shared.process.tasks import end
from shared.errors import DeadlineExceeded, TooLarge
from shared.keys import INTERACTIVE
from shared.messages import EMBED, Draft, Failure, Reply
from shared.connection import Queue
from shared.producer import BULK_FILLS, Bound

if TYPE_CHECKING:
    from api.tracing import Sends

log = structlog.get_logger()

KEEP_PAUSE_S = 0.5
LAST_CANCELS_S = 1.0


class Answered(NamedTuple):
    """What came of a request, as entries in order, with means over its entries of their times (ms).

    `tokens` are those that the model has read. An entry of a `partial` request that failed has no times.
    """

    parts: Sequence[Reply]
    queue_ms: float = 0.0
    inference_ms: float = 0.0
    batch_size: int = 0
    tokens: int = 0
    tokenize_ms: float = 0.0


class Dispatcher:
    """The way of requests through one queue: all of a gateway but HTTP.

    Args:
        settings: of the gateway.
        queue: the name of the queue.
        sends: makes the spans of what goes into it, if requests are traced.

    Attributes:
        gateway: what this gateway is called there.
        queue: its connections to it, closed with this.
    """

    def __init__(self, settings: GatewaySettings, queue: str, sends: Sends | None = None) -> None:
        self._settings = settings
        self.sends = sends
        self.gateway = secrets.token_hex(8)
        self.queue = Queue(settings, queue, f"gateway:{self.gateway}")
        keys = self._keys = self.queue.keys
        self._requests: dict[str, InFlight] = {}
        self._grace = Grace(settings.redis_grace_s, settings.worker_grace_s, settings.redis_memory_ratio)
        self.monitor = Monitor(
            self.queue.link("monitor"), keys, settings.worker_grace_s, Seen(self._on_loss, self._on_fleet)
        )
        self._submitter = Submitter(
            self.queue.link("submit"),
            keys,
            self.gateway,
            Bound(settings.max_queue_inputs, settings.max_queue_tokens),
            Told(
                submitted=self._expect if sends is None else partial(self._expect_traced, sends),
                epoch=self.monitor.saw_epoch,
                full=self.monitor.full,
                slow=self.monitor.slow,
                most_tokens=self.monitor.most_tokens,
                limits=self.monitor.limits,
            ),
        )
        self._replies = Replies(
            [self.queue.link(f"reply:{i}", identified=True) for i in range(1, settings.reply_connections)],
            self.queue.link("reply:bell", identified=True),
            self.queue.link("collect", identified=True),
            self._requests,
            lambda links, requests: self._settler.after_break(links, requests),  # noqa: PLW0108 - it comes below
        )
        self._settler = Settler(
            self.queue.link("settle", identified=True),
            keys,
            self._submitter,
            self._replies.deliver,
            self._replies.taking,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Asks for the state of the queue once, then works in the background."""
        await self.monitor.poll()
        bell = partial(self._replies.run_bell, self._keys, self.gateway)
        parts = (self._submitter.run, bell, self._replies.run_missed, self.monitor.run, self.monitor.beat)
        self._tasks = [asyncio.create_task(_keep(part)) for part in parts]

    async def stop(self) -> None:
        """Stops the background work and closes the connections."""
        await end(self._tasks)
        await self._replies.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CANCELS_S):
                await self._submitter.flush_cancels()
        await self.queue.close()

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer."""
        return len(self._requests)

    async def answer(self, asked: Asked, request_id: str = "") -> Answered:
        """Returns what comes of a request.

        A `request_id` that nobody can guess is that of its entries in Redis; without one they get one.

        When this call is cancelled, because the client left, the work is taken back.

        Raises:
            RedbatchError: any of them but the client's own.
        """
        timeout_s, lane = asked.timeout_ms / 1000, asked.lane
        refusal = admit(self._cluster(), self._grace, timeout_s, random.random())  # noqa: S311 - spreads clients
        if refusal is None and self._holds_enough():
            refusal = self.monitor.full(lane)
        if refusal is not None:
            raise refusal
        loop = asyncio.get_running_loop()
        if asked.op != EMBED:
            check_output(asked, self.monitor.workers())
        drafts, failures = split(asked, self._settings.inputs_per_entry)
        if not drafts:
            return Answered(failures)
        self._check_fits(drafts, lane)
        own_id = request_id or secrets.token_hex(16)
        deadline = loop.time() + timeout_s
        request = InFlight(own_id, drafts, deadline, asked, self._unmix)
        self._requests[request.request_id] = request
        self._replies.reserve(request)
        if self.sends is not None:
            self.sends.begin(request)
        self._submitter.add(Order(request, tuple(drafts)))
        timer = loop.call_at(request.deadline, self._expire, request)
        try:
            return _answered(await request.answer, failures)
        finally:
            timer.cancel()
            self._forget(request)

    def _check_fits(self, drafts: Sequence[Draft], lane: int) -> None:
        """Sees that an empty queue would take a request. Raises TooLarge: trying again would never help."""
        share = 1.0 if lane == INTERACTIVE else BULK_FILLS
        inputs, tokens = sum([draft.n for draft in drafts]), sum([draft.cost for draft in drafts])
        most_inputs, most_tokens = self._settings.max_queue_inputs * share, self._settings.max_queue_tokens * share
        if inputs > most_inputs or tokens > most_tokens:
            raise TooLarge(
                f"{inputs} inputs of some {tokens} tokens are more than the queue takes in this lane "
                f"({most_inputs:.0f} and {most_tokens:.0f}): send less at once."
            )

    def _holds_enough(self) -> bool:
        """Redis is slow or away: what is held here is bounded as the queue is."""
        inputs, tokens = self._submitter.waiting_inputs, self._submitter.waiting_tokens
        return inputs >= self._settings.max_queue_inputs or tokens >= self._settings.max_queue_tokens

    def _cluster(self) -> Cluster:
        """What is known of the rest. Redis is away as well while it answers questions and refuses writes."""
        known = self.monitor.cluster()
        since = self._submitter.repeating_since
        if since is None:
            return known
        return known._replace(redis_down_s=max(known.redis_down_s, asyncio.get_running_loop().time() - since))

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from answering: redis, worker."""
        return ["redis"] if self._submitter.repeating_since is not None else self.monitor.missing()

    def _expect(self, request: InFlight) -> None:
        self._replies.expect(request, self._keys)

    def _expect_traced(self, sends: Sends, request: InFlight) -> None:
        sends.sent(request)
        self._expect(request)

    def _expire(self, request: InFlight) -> None:
        down_s = self._cluster().redis_down_s
        if down_s > 0 and not request.submitted:
            request.expire(redis_away(down_s, random.random()))  # noqa: S311 - spreads clients
        else:
            request.expire(DeadlineExceeded("No answer in time: allow more time, send less at once, or add workers."))

    def _forget(self, request: InFlight) -> None:
        """Lets go of a request. What is still in the stream is taken back; nobody waits for it."""
        del self._requests[request.request_id]
        request.close()
        if refs := request.outstanding():
            self._submitter.cancel(refs.values(), None if request.rings else request.request_id)
        self._replies.release(request)

    def _unmix(self, request: InFlight) -> None:
        """Has vectors made again that are of another revision than most, as far as those are still made."""
        found, live = request.revisions(), self.monitor.revisions()
        lasting = [each for each, _ in found.most_common() if each in live] or sorted(live) or list(found)
        self._again(request, lasting[0])

    def _on_fleet(self) -> None:
        """Sees to requests that wait for a revision which nobody serves any more."""
        live = self.monitor.revisions()
        for request in list(self._requests.values()):
            if request.revision and live and request.revision not in live and not request.done:
                self._unmix(request)

    def _again(self, request: InFlight, revision: str) -> None:
        drafts, waiting = request.keep(revision)
        self._submitter.cancel(waiting)
        if not drafts:  # all of it is on its way into the stream: the submitter sees that it is for another now
            return
        self._submitter.add(Order(request, tuple(drafts), exempt=True))
        metrics.MIXED.inc(len(drafts))
        log.info("a request met two revisions of the model: part of it runs again", entries=len(drafts))

    async def _on_loss(self) -> None:
        await self._settler.settle(list(self._requests.values()), cause="epoch")


async def _keep(part: Callable[[], Awaitable[None]]) -> None:
    """Runs a part of the background for ever. What it did not foresee is logged, and the part begins anew."""
    while True:
        try:
            await part()
        except Exception:
            log.exception("a part of the gateway failed")
            await asyncio.sleep(KEEP_PAUSE_S)


def _answered(replies: Sequence[Reply], failures: Sequence[Failure]) -> Answered:
    results = [each for each in replies if not isinstance(each, Failure)]
    if failures:
        replies = sorted([*replies, *failures], key=lambda reply: reply.position)
    if not results:
        return Answered(replies)
    number = len(results)
    queue_ms = inference_ms = tokenize_ms = 0.0
    batch_size = tokens = 0
    for each in results:
        timing = each.timing
        queue_ms += timing.queue_ms
        inference_ms += timing.inference_ms
        tokenize_ms += timing.tokenize_ms
        batch_size = max(batch_size, timing.batch_size)
        tokens += sum(each.tokens)
    return Answered(replies, queue_ms / number, inference_ms / number, batch_size, tokens, tokenize_ms / number)
