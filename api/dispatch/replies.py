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
from shared.process.tasks import end
from shared import producer
from shared.codec import CodecError, decode_reply
from shared.errors import RedisUnreachable
from shared.keys import Keys
from shared.connection import BLOCK_S, Link
from shared.producer import Bell, announced

log = structlog.get_logger()

COLLECT_KEYS = 384
COLLECT_RINGS = 4
"""Not more at once: the replies of a call whose connection breaks are lost, and their requests run again.

Nor fewer: what is answered at once is what its clients send at once, and the next batches are made of it."""

LINGER_S = 0.05
"""How long past its deadline a waiter listens, so that a reply of that moment is not left to its TTL."""


Broken = Callable[[list[Link], Callable[[], list[InFlight]]], Awaitable[None]]


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
        self, waiters: list[Link], bell: Link, control: Link, requests: dict[str, InFlight], broken: Broken
    ) -> None:
        self._free = list(waiters)
        self._bell = bell
        self._control = control
        self._requests = requests
        self._broken = broken
        self._holders: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._missed: list[InFlight] = []
        self._more_missed = asyncio.Event()
        self.taking = asyncio.Lock()

    def reserve(self, request: InFlight) -> None:
        """Gives a request a waiter of its own if one is free; otherwise its replies are announced by the bell."""
        if self._free:
            request.rings = False
            self._holders[request.request_id] = self._free.pop()

    def release(self, request: InFlight) -> None:
        """Takes back the waiter of a request that nobody waits for, unless it is at work."""
        link = self._holders.pop(request.request_id, None)
        if link is not None:
            self._free.append(link)

    def expect(self, request: InFlight, keys: Keys) -> None:
        """Begins to wait for a request that is in the stream now; the bell needs no word of it."""
        link = self._holders.pop(request.request_id, None)
        if link is not None:
            task = asyncio.create_task(self._wait(link, request, keys), name="waiter")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if request.missed:
            request.missed = False
            self._missed.append(request)
            self._more_missed.set()

    async def stop(self) -> None:
        """Ends every wait. Only for the end of a gateway: a reply that is on its way is read by nobody."""
        await end(self._tasks)

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
        if request is None or not request.take(reply):
            metrics.LATE_REPLIES.inc()

    async def _wait(self, link: Link, request: InFlight, keys: Keys) -> None:
        """Pops the request's key until it is answered or too late for that."""
        loop = asyncio.get_running_loop()
        key = keys.reply(request.request_id)
        try:
            while not request.done and (left := request.deadline + LINGER_S - loop.time()) > 0:
                try:
                    data = await link.pop(key, left)
                except RedisUnreachable:
                    await self._broken([link], lambda: [request])
                    continue
                if data is not None:
                    self.deliver(data)
        finally:
            self._free.append(link)

    async def run_bell(self, keys: Keys, gateway: str) -> None:
        """Listens to the bell until cancelled."""
        bell = keys.bell(gateway)
        await self._look_after_bell()  # when this begins anew, a ring may have been lost
        while True:
            try:
                rung = await self._bell.pop(bell, BLOCK_S)
                if rung is not None:
                    await self._collect(announced(rung), keys, Bell(gateway, COLLECT_RINGS))
            except RedisUnreachable:
                await self._look_after_bell()

    async def _look_after_bell(self) -> None:
        def ringing() -> list[InFlight]:
            return [each for each in self._requests.values() if each.rings]

        await self._broken([self._bell, self._control], ringing)

    async def run_missed(self) -> None:
        """Looks after requests that were missed when a connection broke, until cancelled."""
        while True:
            self._more_missed.clear()
            if not self._missed:
                await self._more_missed.wait()
            settled: list[InFlight] = []

            def those(settled: list[InFlight] = settled) -> list[InFlight]:
                settled[:] = self._missed
                return settled

            await self._broken([], those)
            del self._missed[: len(settled)]  # the rest came meanwhile

    async def _collect(self, ids: list[str], keys: Keys, bell: Bell) -> None:
        """Takes what the bell announced, and what it announces meanwhile: the busier, the more in one call."""
        wanted = self._known(ids)
        while wanted:
            part, wanted = wanted[:COLLECT_KEYS], wanted[COLLECT_KEYS:]
            async with self.taking:
                collected = await producer.collect(self._control, keys, part, None if wanted else bell)
                for replies in collected.replies:
                    for data in replies:
                        self.deliver(data)
            wanted += self._known(collected.announced)

    def _known(self, ids: list[str]) -> list[str]:
        """Returns those that still wait, once each: a request of several entries is announced for each."""
        return [each for each in dict.fromkeys(ids) if each in self._requests]
