"""Settle: the one recovery of a gateway. It looks at each outstanding request and adds again what is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

from api import metrics
from api.dispatch.inflight import InFlight
from api.dispatch.submitter import PendingSubmit, Submitter
from shared import producer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.backoff import Backoff
from shared.producer import OutstandingRequest

log = structlog.get_logger()

CHUNK = 64
FIRST_RETRY_S = 0.01
MAX_RETRY_S = 0.5


class Reconciler:
    """Looks after requests whose replies may have been lost.

    Args:
        connection: a connection of its own.
        keys: the queue.
        submitter: adds lost entries again.
        deliver: takes the replies that were found.
        taking: held while replies are on their way from Redis, so that none is taken for lost meanwhile.
    """

    def __init__(
        self,
        connection: RedisConnection,
        keys: Keys,
        submitter: Submitter,
        deliver: Callable[[bytes], None],
        taking: asyncio.Lock,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._submitter = submitter
        self._deliver = deliver
        self._taking = taking

    async def after_break(self, broken: Iterable[RedisConnection], requests: Callable[[], Iterable[InFlight]]) -> None:
        """Settles the requests that wait on connections that broke, once Redis answers again.

        Which these are is asked when nothing can be given to the broken connections any more. What is not in the stream
        yet, as far as is known, is `missed`, and to be settled once it is.

        Redis may still hold an old connection for alive and give replies to it, be it one that waited for them, one
        that collected them, or the one that settles: these are killed first.
        """
        connections = [*broken, self._connection]
        backoff = Backoff(FIRST_RETRY_S, MAX_RETRY_S)
        while True:
            await backoff.wait()  # always: whoever calls this tries its connection again right after it
            with suppress(RedisUnreachableError):
                await self._connection.ping()
                for connection in connections:
                    await self._connection.kill(connection)
                waiting = [request for request in requests() if not request.done]
                for request in waiting:
                    request.missed = request.missed or request.unplaced
                await self.settle(waiting, cause="connection")
                return

    async def settle(self, requests: Iterable[InFlight], cause: str) -> None:
        """Takes the replies that are there; adds again each entry that is neither answered nor in the stream.

        Raises:
            RedisUnreachableError: call it again.
        """
        waiting = list(requests)
        metrics.RECONCILIATIONS.labels(cause).inc()
        for start in range(0, len(waiting), CHUNK):
            async with self._taking:
                await self._settle(waiting[start : start + CHUNK])

    async def _settle(self, requests: list[InFlight]) -> None:
        asked = [(request, places) for request in requests if not request.done and (places := request.outstanding())]
        if not asked:
            return
        outstanding = [OutstandingRequest(request.request_id, tuple(places.values())) for request, places in asked]
        settled = await producer.reconcile(self._connection, self._keys, outstanding)
        lost = 0
        for (request, places), found in zip(asked, settled, strict=True):
            for data in found.replies:
                self._deliver(data)
            if request.done:
                continue
            absent = [place for place, there in zip(places.items(), found.present, strict=True) if not there]
            new_entries = tuple(new_entry for place in absent if (new_entry := request.lose(*place)) is not None)
            if new_entries:
                lost += len(new_entries)
                self._submitter.add(PendingSubmit(request, new_entries, exempt=True))
        if lost:
            metrics.RESUBMITTED_ENTRIES.inc(lost)
            log.warning("lost entries are submitted again", n=lost)
