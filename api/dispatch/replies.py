"""How replies come back: a few waiters, each blocking on one request's own key, and one bell for all others.

A blocking pop holds a connection, so their number is fixed. It is never cancelled either: a reply that is already on
its way would be popped from Redis and read by nobody, or by the next. Every pop here belongs to a task of this module,
and a request that ends early leaves its waiter to be woken by the cancel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from api import metrics
from api.dispatch.inflight import InFlight
from shared import producer
from shared.codec import CodecError, decode_reply
from shared.connection import BLOCK_S, RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.tasks import cancel_and_wait
from shared.producer import Bell, parse_bell_element

log = structlog.get_logger()

MAX_COLLECT_KEYS = 384
MAX_COLLECT_RINGS = 4
"""Not more at once: the replies of a call whose connection breaks are lost, and their requests run again.

Nor fewer: what is answered at once is what its clients send at once, and the next batches are made of it."""

LINGER_S = 0.05
"""How long past its deadline a waiter listens, so that a reply of that moment is not left to its TTL."""


ReconcileAfterBreak = Callable[[list[RedisConnection], Callable[[], list[InFlight]]], Awaitable[None]]


class Replies:
    """Brings replies to the requests that wait for them.

    Args:
        waiters: connections that pop one request's own key each.
        bell: the connection that pops this gateway's bell.
        control: a connection for what does not block.
        requests: the requests in flight, by id.
        broken: looks after requests whose connections broke; called with these, and with what names the requests.
    """

    def __init__(
        self,
        waiters: list[RedisConnection],
        bell: RedisConnection,
        control: RedisConnection,
        requests: dict[str, InFlight],
        reconcile: ReconcileAfterBreak,
    ) -> None:
        self._free_waiters = list(waiters)
        self._bell = bell
        self._control = control
        self._requests = requests
        self._reconcile = reconcile
        self._reserved: dict[str, RedisConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._deferred: list[InFlight] = []
        self._deferred_added = asyncio.Event()
        self.collect_lock = asyncio.Lock()

    def reserve(self, request: InFlight) -> None:
        """Gives a request a waiter of its own if one is free; otherwise its replies are announced by the bell."""
        if self._free_waiters:
            request.uses_bell = False
            self._reserved[request.request_id] = self._free_waiters.pop()

    def release(self, request: InFlight) -> None:
        """Takes back the waiter of a request that nobody waits for, unless it is at work."""
        connection = self._reserved.pop(request.request_id, None)
        if connection is not None:
            self._free_waiters.append(connection)

    def wait_for(self, request: InFlight, keys: Keys) -> None:
        """Begins to wait for a request that is in the stream now; the bell needs no word of it."""
        connection = self._reserved.pop(request.request_id, None)
        if connection is not None:
            task = asyncio.create_task(self._wait(connection, request, keys), name="waiter")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if request.reconcile_on_submit:
            request.reconcile_on_submit = False
            self._deferred.append(request)
            self._deferred_added.set()

    async def stop(self) -> None:
        """Ends every wait. Only for the end of a gateway: a reply that is on its way is read by nobody."""
        await cancel_and_wait(self._tasks)

    def deliver(self, data: bytes) -> None:
        """Brings one reply to its request. What nobody waits for, or is no reply, is dropped."""
        if not data:  # a cancel's wake-up
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
        """Pops the request's key until it is answered or too late for that."""
        loop = asyncio.get_running_loop()
        key = keys.reply(request.request_id)
        try:
            while not request.done and (left_s := request.deadline + LINGER_S - loop.time()) > 0:
                try:
                    data = await connection.pop(key, left_s)
                except RedisUnreachableError:
                    await self._reconcile([connection], lambda: [request])
                    continue
                if data is not None:
                    self.deliver(data)
        finally:
            self._free_waiters.append(connection)

    async def run_bell(self, keys: Keys, gateway: str) -> None:
        """Listens to the bell until cancelled."""
        bell = keys.bell(gateway)
        await self._reconcile_bell()  # when this begins anew, a ring may have been lost
        while True:
            try:
                ring = await self._bell.pop(bell, BLOCK_S)
                if ring is not None:
                    await self._collect(parse_bell_element(ring), keys, Bell(gateway, MAX_COLLECT_RINGS))
            except RedisUnreachableError:
                await self._reconcile_bell()

    async def _reconcile_bell(self) -> None:
        def requests_on_bell() -> list[InFlight]:
            return [each for each in self._requests.values() if each.uses_bell]

        await self._reconcile([self._bell, self._control], requests_on_bell)

    async def run_deferred(self) -> None:
        """Looks after requests that were missed when a connection broke, until cancelled."""
        while True:
            self._deferred_added.clear()
            if not self._deferred:
                await self._deferred_added.wait()
            reconciled: list[InFlight] = []

            def deferred_requests(reconciled: list[InFlight] = reconciled) -> list[InFlight]:
                reconciled[:] = self._deferred
                return reconciled

            await self._reconcile([], deferred_requests)
            del self._deferred[: len(reconciled)]  # the rest came meanwhile

    async def _collect(self, request_ids: list[str], keys: Keys, bell: Bell) -> None:
        """Takes what the bell announced, and what it announces meanwhile: the busier, the more in one call."""
        ids = self._waiting_ids(request_ids)
        while ids:
            part, ids = ids[:MAX_COLLECT_KEYS], ids[MAX_COLLECT_KEYS:]
            async with self.collect_lock:
                collected = await producer.collect(self._control, keys, part, None if ids else bell)
                for replies in collected.replies:
                    for data in replies:
                        self.deliver(data)
            ids += self._waiting_ids(collected.request_ids)

    def _waiting_ids(self, request_ids: list[str]) -> list[str]:
        """Returns those that still wait, once each: a request of several entries is announced for each."""
        return [each for each in dict.fromkeys(request_ids) if each in self._requests]
