"""Settle: the one recovery of a gateway. It looks at each outstanding request and adds again what is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from api import metrics
from api.dispatch.inflight import InFlight
from api.dispatch.submitter import Order, Submitter
from shared import producer
from shared.errors import RedisUnreachable
from shared.keys import Keys
from shared.connection import Link
from shared.producer import Outstanding

log = structlog.get_logger()

CHUNK = 64
RETRY_FIRST_S = 0.01
RETRY_MOST_S = 0.5


class Settler:
    """Looks after requests whose replies may have been lost.

    Args:
        link: a connection of its own.
        keys: the queue.
        submitter: adds lost entries again.
        deliver: takes the replies that were found.
        taking: held while replies are on their way from Redis, so that none is taken for lost meanwhile.
    """

    def __init__(
        self, link: Link, keys: Keys, submitter: Submitter, deliver: Callable[[bytes], None], taking: asyncio.Lock
    ) -> None:
        self._link = link
        self._keys = keys
        self._submitter = submitter
        self._deliver = deliver
        self._taking = taking

    async def after_break(self, broken: Iterable[Link], requests: Callable[[], Iterable[InFlight]]) -> None:
        """Settles the requests that wait on connections that broke, once Redis answers again.

        Which these are is asked when nothing can be given to the broken connections any more. What is not in the stream
        yet, as far as is known, is `missed`, and to be settled once it is.

        Redis may still hold an old connection for alive and give replies to it, be it one that waited for them, one
        that collected them, or the one that settles: these are killed first.
        """
        links = [*broken, self._link]
        pause = RETRY_FIRST_S
        while True:
            await asyncio.sleep(pause)  # always: whoever calls this tries its connection again right after it
            try:
                await self._link.ping()
                for link in links:
                    await self._link.kill(link)
                waiting = [request for request in requests() if not request.done]
                for request in waiting:
                    request.missed = request.missed or request.unplaced
                await self.settle(waiting, cause="connection")
            except RedisUnreachable:
                pause = min(2 * pause, RETRY_MOST_S)
            else:
                return

    async def settle(self, requests: Iterable[InFlight], cause: str) -> None:
        """Takes the replies that are there; adds again each entry that is neither answered nor in the stream.

        Raises:
            RedisUnreachable: call it again.
        """
        waiting = list(requests)
        metrics.SETTLES.labels(cause).inc()
        for start in range(0, len(waiting), CHUNK):
            async with self._taking:
                await self._settle(waiting[start : start + CHUNK])

    async def _settle(self, requests: list[InFlight]) -> None:
        asked = [(request, places) for request in requests if not request.done and (places := request.outstanding())]
        if not asked:
            return
        outstanding = [Outstanding(request.request_id, tuple(places.values())) for request, places in asked]
        settled = await producer.settle(self._link, self._keys, outstanding)
        lost = 0
        for (request, places), found in zip(asked, settled, strict=True):
            for data in found.replies:
                self._deliver(data)
            if request.done:
                continue
            absent = [place for place, there in zip(places.items(), found.present, strict=True) if not there]
            drafts = tuple(draft for place in absent if (draft := request.lose(*place)) is not None)
            if drafts:
                lost += len(drafts)
                self._submitter.add(Order(request, drafts, exempt=True))
        if lost:
            metrics.RESUBMITTED.inc(lost)
            log.warning("lost entries are submitted again", n=lost)
