"""How replies come back: waiters, each blocking on the reply key of one of few requests, and one bell for many.

A blocking pop holds a connection, so the number of waiters is fixed. A pop is never cancelled either: a reply that is
already on its way would be popped from Redis and read by no request, or by the next one. Every pop belongs to a task of
this module, and when a request ends early, its cancel wakes the waiter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from api import metrics
from api.dispatch.inflight import InFlight
from shared import producer
from shared.codec import CodecError, decode_reply
from shared.connection import BLOCK_S, RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.backoff import Backoff
from shared.process.tasks import cancel_and_wait
from shared.producer import Bell, parse_bell_element
from shared.redis_errors import UnexpectedReplyError

log = structlog.get_logger()

MAX_COLLECT_KEYS = 384
MAX_COLLECT_RINGS = 4
"""Maximum reply keys and bell elements of one collect call.

Not more: if the connection breaks, the replies of the call are lost, and their requests run again. Not fewer: clients
that are answered together send their next requests together, and the next batches consist of these."""

MAX_SMALL_BYTES = 128 * 2**10
"""Maximum size of the results of a request whose replies need no bound in bytes, as a call has at most 384 of them."""

MAX_COLLECT_BYTES = 8 * 2**20
"""Other replies are collected in calls that end with the reply by which they exceed this, as one may have 32 MiB."""

LINGER_S = 0.05
"""How long a waiter listens after the request's deadline, so that a reply at the deadline is not left to its TTL."""

RETRY_MIN_S = 0.01
RETRY_MAX_S = 0.5

ReconcileAfterBreak = Callable[[list[RedisConnection], Callable[[], list[str]], Backoff], Awaitable[None]]


class Replies:
    """Delivers replies to the requests that wait for them.

    Args:
        waiters: connections that each pop the reply key of one request.
        bell: the connection that pops this gateway's bell.
        control: a connection for commands that do not block.
        requests: the requests in flight, by id.
        reconcile: reconciles requests after a broken connection; called with the broken connections, with a function
            that returns the ids of the requests, and with a backoff.

    Attributes:
        collect_lock: held while replies are on their way from Redis.
        is_refused: whether Redis answers, but refuses what announces or collects replies. They then come late.
    """

    def __init__(
        self,
        waiters: list[RedisConnection],
        bell: RedisConnection,
        control: RedisConnection,
        requests: dict[str, InFlight],
        reconcile: ReconcileAfterBreak,
    ) -> None:
        self._free_waiters, self._num_waiters = list(waiters), len(waiters)
        self._bell = bell
        self._control = control
        self._requests = requests
        self._reconcile = reconcile
        self._reserved: dict[str, RedisConnection] = {}
        self._large: set[str] = set()
        """Requests whose results may take more than MAX_SMALL_BYTES."""
        self._large_with_waiter = ""
        """The one of these that has a waiter, until this has stopped to listen; "" for none."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._deferred: list[str] = []
        self._deferred_added = asyncio.Event()
        self.collect_lock = asyncio.Lock()
        self.is_refused = False

    def reserve(self, request: InFlight, max_bytes: int) -> None:
        """Reserves a waiter for a request if one is free; otherwise its replies are announced on the bell.

        While more requests are in flight than there are waiters, all new ones use the bell: replies then come many in a
        call, which takes less CPU. For one request alone, a waiter is the faster way.

        Args:
            request: the request, which is one of those in flight.
            max_bytes: of its results. Of large ones, only one request at a time has a waiter, as each takes memory.
        """
        is_large = max_bytes > MAX_SMALL_BYTES
        if is_large:
            self._large.add(request.request_id)
        is_crowded = len(self._requests) > self._num_waiters
        if is_crowded or not self._free_waiters or (is_large and self._large_with_waiter):
            return
        if is_large:
            self._large_with_waiter = request.request_id
        request.uses_bell = False
        self._reserved[request.request_id] = self._free_waiters.pop()

    def release(self, request: InFlight) -> None:
        """Frees the reserved waiter of a request that has ended, unless the waiter is already listening."""
        if self._large:
            self._large.discard(request.request_id)
        connection = self._reserved.pop(request.request_id, None)
        if connection is not None:
            self._free(request, connection)

    def _free(self, request: InFlight, connection: RedisConnection) -> None:
        self._free_waiters.append(connection)
        if request.request_id == self._large_with_waiter:
            self._large_with_waiter = ""

    def wait_for(self, request: InFlight, keys: Keys) -> None:
        """Starts to wait for the replies to a request that is now in the stream; the bell needs no notice of it."""
        connection = self._reserved.pop(request.request_id, None)
        if connection is not None:
            task = asyncio.create_task(self._wait(connection, request, keys), name="waiter")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if request.reconcile_on_submit:
            request.reconcile_on_submit = False
            self.defer(request)

    def defer(self, request: InFlight) -> None:
        """Has a request reconciled soon."""
        self._deferred.append(request.request_id)
        self._deferred_added.set()

    def waiting(self, request_ids: Iterable[str]) -> list[InFlight]:
        """Returns the requests with these ids that still wait for replies.

        The reconciler keeps ids while it collects replies, because a request that has ended keeps its own in memory.
        """
        found = [self._requests.get(each) for each in request_ids]
        return [each for each in found if each is not None and not each.done]

    async def stop(self) -> None:
        """Ends every wait. Only for the stop of a gateway: a reply that is on its way is lost."""
        await cancel_and_wait(self._tasks)

    def deliver(self, data: bytes) -> None:
        """Delivers one reply to its request. Unreadable replies, and those that no request waits for, are dropped."""
        if not data:  # the wake-up of a cancel
            return
        try:
            reply = decode_reply(data)
        except CodecError as error:
            log.warning("unreadable reply", reason=str(error))
            return
        request = self._requests.get(reply.request_id)
        if request is None or not request.accept(reply):
            metrics.LATE_REPLIES.inc()

    async def _wait(self, connection: RedisConnection, request: InFlight, keys: Keys) -> None:
        """Pops the request's reply key until the request is answered or its deadline has passed."""
        loop = asyncio.get_running_loop()
        key, backoff = keys.reply(request.request_id), Backoff(RETRY_MIN_S, RETRY_MAX_S)
        try:
            while not request.done and (left_s := request.deadline + LINGER_S - loop.time()) > 0:
                try:
                    data = await connection.pop(key, left_s)
                except RedisUnreachableError:
                    await self._reconcile([connection], lambda: [request.request_id], backoff)
                    continue
                backoff.reset()
                if data is not None:
                    self.deliver(data)
        finally:
            self._free(request, connection)

    async def run_bell(self, keys: Keys, gateway: str) -> None:
        """Listens to the bell until cancelled."""
        bell, backoff = keys.bell(gateway), Backoff(RETRY_MIN_S, RETRY_MAX_S)
        await self._reconcile_bell(backoff)  # if this task was restarted, an element of the bell may have been lost
        while True:
            try:
                ring = await self._bell.pop(bell, BLOCK_S)
                if ring is not None:
                    await self._collect(parse_bell_element(ring), keys, Bell(gateway, MAX_COLLECT_RINGS))
                backoff.reset()
                self.is_refused = False
            except RedisUnreachableError as error:
                self.is_refused = isinstance(error, UnexpectedReplyError)
                await self._reconcile_bell(backoff)

    async def _reconcile_bell(self, backoff: Backoff) -> None:
        def ids_on_bell() -> list[str]:
            return [request_id for request_id, each in self._requests.items() if each.uses_bell]

        await self._reconcile([self._bell, self._control], ids_on_bell, backoff)

    async def run_deferred(self) -> None:
        """Reconciles requests whose entries were on their way when a connection broke, or wait; until cancelled."""
        while True:
            self._deferred_added.clear()
            if not self._deferred:
                await self._deferred_added.wait()
            reconciled: list[str] = []

            def deferred_ids(reconciled: list[str] = reconciled) -> list[str]:
                reconciled[:] = self._deferred
                return reconciled

            await self._reconcile([], deferred_ids, Backoff(RETRY_MIN_S, RETRY_MAX_S))
            del self._deferred[: len(reconciled)]  # the others were added meanwhile

    async def _collect(self, request_ids: list[str], keys: Keys, bell: Bell) -> None:
        """Collects the announced replies, and those announced meanwhile: under load, more replies share one call."""
        small, large = self._waiting_ids(request_ids)
        while small or large:
            part, small = small[:MAX_COLLECT_KEYS], small[MAX_COLLECT_KEYS:]
            async with self.collect_lock:
                announced_ids = await self._collect_small(keys, part, None if small else bell)
                if large:
                    large = large[await self.collect_large(self._control, keys, large[:MAX_COLLECT_KEYS]) :]
            more_small, more_large = self._waiting_ids(announced_ids)
            small += more_small
            large += more_large

    async def _collect_small(self, keys: Keys, request_ids: list[str], bell: Bell | None) -> list[str]:
        """Collects all replies to requests; returns the further requests that the bell announces."""
        collected = await producer.collect(self._control, keys, request_ids, bell)
        for replies in collected.replies:
            for data in replies:
                self.deliver(data)
        return collected.request_ids

    async def collect_large(self, connection: RedisConnection, keys: Keys, request_ids: list[str]) -> int:
        """Collects replies of any size, up to MAX_COLLECT_BYTES and the rest of the last one.

        Returns the number of requests, from the first on, whose replies are all collected.
        """
        num_complete, replies = await producer.collect_within(connection, keys, request_ids, MAX_COLLECT_BYTES)
        for data in replies:
            self.deliver(data)
        return num_complete

    def _waiting_ids(self, request_ids: list[str]) -> tuple[list[str], list[str]]:
        """Returns the ids of requests that still wait, once each: a request is announced once per entry.

        The second list has those whose results may be large.
        """
        waiting_ids = [each for each in dict.fromkeys(request_ids) if each in self._requests]
        if not self._large:
            return waiting_ids, []
        small = [each for each in waiting_ids if each not in self._large]
        return small, [each for each in waiting_ids if each in self._large]
