"""Takes requests through the queue: split, submit, wait, put together."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import structlog

from api import metrics
from api.admission import Cluster, Grace, admit, redis_away
from api.inflight import InFlight
from api.monitor import Monitor
from api.replies import Replies
from api.settings import GatewaySettings
from api.settler import Settler
from api.submitter import Order, Submitter, Told
from redbatch.tasks import end
from shared.codec import encode_body
from shared.errors import DeadlineExceeded, InvalidRequest, TooLarge
from shared.keys import INTERACTIVE
from shared.messages import EMBED, PLAIN, Body, Draft, Input, Options, Vectors
from shared.queue import Queue
from shared.submission import BULK_FILLS, Bound

log = structlog.get_logger()

KEEP_PAUSE_S = 0.5
LAST_CANCELS_S = 1.0
CHARS_PER_TOKEN = 4
BYTES_PER_ID = 4
SPECIAL_TOKENS = 2


class Embedded(NamedTuple):
    """The vectors of a request, as entries in order, with means over its entries of their times (ms).

    `tokens` are those that the model has read.
    """

    vectors: tuple[Vectors, ...]
    queue_ms: float
    inference_ms: float
    batch_size: int
    tokens: int = 0


def estimate_tokens(given: Input) -> int:
    """Returns about how many tokens an input has: the gateway holds no tokenizer, and a third off is good enough."""
    if isinstance(given, bytes):
        return len(given) // BYTES_PER_ID
    return len(given) // CHARS_PER_TOKEN + SPECIAL_TOKENS


def split(inputs: Sequence[Input], per_entry: int, options: Options = PLAIN) -> list[Draft]:
    """Returns the entries of a request.

    Raises:
        InvalidRequest: an input is not text that UTF-8 can carry.
    """
    drafts = []
    for start in range(0, len(inputs), per_entry):
        part = tuple(inputs[start : start + per_entry])
        try:
            body = encode_body(Body(EMBED, part, options))
        except UnicodeEncodeError as error:
            raise InvalidRequest("An input holds a lone surrogate, which is no character.") from error
        drafts.append(Draft(start, len(part), sum(map(estimate_tokens, part)), body))
    return drafts


class Dispatcher:
    """All of a gateway but HTTP."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.gateway = secrets.token_hex(8)
        self._queue = Queue(settings, settings.queue, f"gateway:{self.gateway}")
        keys = self._keys = self._queue.keys
        self._requests: dict[str, InFlight] = {}
        self._grace = Grace(settings.redis_grace_s, settings.worker_grace_s, settings.redis_memory_ratio)
        self.monitor = Monitor(self._queue.link("monitor"), keys, settings.worker_grace_s, self._on_loss)
        self._submitter = Submitter(
            self._queue.link("submit"),
            keys,
            self.gateway,
            Bound(settings.max_queue_inputs, settings.max_queue_tokens),
            Told(
                submitted=lambda request: self._replies.expect(request, keys),
                epoch=self.monitor.saw_epoch,
                full=self.monitor.full,
                slow=self.monitor.slow,
                most_tokens=self.monitor.most_tokens,
            ),
        )
        self._replies = Replies(
            [self._queue.link(f"reply:{i}", identified=True) for i in range(1, settings.reply_connections)],
            self._queue.link("reply:bell", identified=True),
            self._queue.link("collect", identified=True),
            self._requests,
            lambda links, requests: self._settler.after_break(links, requests),  # noqa: PLW0108 - it comes below
        )
        self._settler = Settler(
            self._queue.link("settle", identified=True),
            keys,
            self._submitter,
            self._replies.deliver,
            self._replies.taking,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Asks for the state of the queue once, then works in the background."""
        metrics.IN_FLIGHT.set_function(lambda: len(self._requests))
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
        await self._queue.close()

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer."""
        return len(self._requests)

    async def embed(
        self,
        inputs: Sequence[Input],
        timeout_ms: int,
        lane: int = INTERACTIVE,
        options: Options = PLAIN,
        request_id: str = "",
    ) -> Embedded:
        """Returns the vectors of the inputs, which go through that lane (index of keys.LANES).

        A `request_id` that nobody can guess is that of its entries in Redis; without one they get one.

        When this call is cancelled, because the client left, the work is taken back.

        Raises:
            RedbatchError: any of them but the client's own.
        """
        refusal = admit(self._cluster(), self._grace, timeout_ms / 1000, random.random())  # noqa: S311 - spreads clients
        if refusal is None and self._holds_enough():
            refusal = self.monitor.full(lane)
        if refusal is not None:
            raise refusal
        loop = asyncio.get_running_loop()
        drafts = split(inputs, self._settings.inputs_per_entry, options)
        self._check_fits(len(inputs), drafts, lane)
        request = InFlight(request_id or secrets.token_hex(16), drafts, loop.time() + timeout_ms / 1000, lane)
        self._requests[request.request_id] = request
        self._replies.reserve(request)
        self._submitter.add(Order(request, tuple(drafts)))
        timer = loop.call_at(request.deadline, self._expire, request)
        try:
            return _embedded(await request.answer)
        finally:
            timer.cancel()
            self._forget(request)

    def _check_fits(self, inputs: int, drafts: Sequence[Draft], lane: int) -> None:
        """Sees that an empty queue would take a request. Raises TooLarge: trying again would never help."""
        share = 1.0 if lane == INTERACTIVE else BULK_FILLS
        tokens = sum([draft.cost for draft in drafts])
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

    def _expire(self, request: InFlight) -> None:
        down_s = self._cluster().redis_down_s
        if down_s > 0 and not request.submitted:
            request.fail(redis_away(down_s, random.random()))  # noqa: S311 - spreads clients
        else:
            request.fail(DeadlineExceeded("No answer in time: allow more time, send less at once, or add workers."))

    def _forget(self, request: InFlight) -> None:
        """Lets go of a request. What is still in the stream is taken back; nobody waits for it."""
        del self._requests[request.request_id]
        request.close()
        if refs := request.outstanding():
            self._submitter.cancel(refs.values(), None if request.rings else request.request_id)
        self._replies.release(request)

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


def _embedded(vectors: list[Vectors]) -> Embedded:
    timings = [each.timing for each in vectors]
    number = len(timings)
    return Embedded(
        tuple(vectors),
        sum([each.queue_ms for each in timings]) / number,
        sum([each.inference_ms for each in timings]) / number,
        max([each.batch_size for each in timings]),
        sum([each.tokens for each in vectors]),
    )
