"""Reconcile: the gateway's only recovery. It checks each outstanding request and adds lost entries again.

Connections may lead to different masters for a moment, and Redis may lose its data again and again. So an entry is
added again at most once in RESUBMIT_INTERVAL_S, only if none of the entries added for it before is in its stream, and
only at the epoch at which they were missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from api import metrics
from api.dispatch.inflight import InFlight
from api.dispatch.replies import Replies
from api.dispatch.submitter import PendingSubmit, Submitter
from shared import producer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.messages import NewEntry, Ref
from shared.process.backoff import Backoff
from shared.process.limited_log import LimitedLog
from shared.process.unexpected_replies import record_failing_call
from shared.producer import OutstandingRequest
from shared.queue_connections import QueueConnections

limited_log = LimitedLog()  # of many requests that wait, each chunk has lost entries

CHUNK_REQUESTS = 64
STALE_PAUSE_S = 0.05
"""Time until requests are reconciled again whose entries were missed at one epoch and not added at another one."""


class Reconciler:
    """Recovers requests whose replies may have been lost.

    Args:
        connections: those of the queue; one of them is used only by the reconciler.
        submitter: adds lost entries again.
        replies: delivers replies; a lock that it holds while they are on their way from Redis is held here, too, so
            that none of them is considered lost.
    """

    def __init__(
        self,
        connections: QueueConnections,
        submitter: Submitter,
        replies: Replies,
    ) -> None:
        self._connection = connections.connection("settle", identified=True)
        self._keys, self._address = connections.keys, connections.settings.redis_address
        self._submitter = submitter
        self._replies = replies
        self._postponed: set[InFlight] = set()

    async def reconcile_after_break(
        self, broken: Iterable[RedisConnection], request_ids: Callable[[], Iterable[str]], backoff: Backoff
    ) -> None:
        """Reconciles the requests that wait on broken connections, once Redis answers again.

        The caller uses its connection again right after this call: it resets `backoff` when that succeeds.

        `request_ids` is called when Redis can send no more replies to the broken connections. A request with entries
        that are not known to be in the stream yet gets `reconcile_on_submit`: it is reconciled once they are there.

        Redis may still consider an old connection alive and send replies to it, whether it waited for replies,
        collected them, or reconciled: these connections are killed first.
        """
        connections = [*broken, self._connection]
        while True:
            await backoff.wait()
            try:
                await self._connection.ping()
                for connection in connections:
                    await self._connection.kill(connection)
                unanswered = list(request_ids())
                self._mark_unplaced(unanswered)
                await self.reconcile(unanswered, cause="connection")
            except RedisUnreachableError as error:
                record_failing_call("requests cannot be reconciled", error)
            else:
                return

    def _mark_unplaced(self, request_ids: Sequence[str]) -> None:
        for request in self._replies.waiting(request_ids):
            request.reconcile_on_submit = request.reconcile_on_submit or request.has_unplaced_entries

    async def reconcile(self, request_ids: Sequence[str], cause: str) -> None:
        """Delivers the replies that are in Redis; adds each entry again that has no reply and is not in the stream.

        Raises:
            RedisUnreachableError: Redis did not answer; call this again.
        """
        metrics.RECONCILIATIONS.labels(cause).inc()
        for start in range(0, len(request_ids), CHUNK_REQUESTS):
            async with self._replies.collect_lock:
                await self._reconcile_chunk(request_ids[start : start + CHUNK_REQUESTS])

    async def _reconcile_chunk(self, request_ids: Sequence[str]) -> None:
        """Collects replies with their bound in bytes before: the reconcile call itself has none, and finds the rest."""
        uncollected = [each.request_id for each in self._replies.waiting(request_ids)]
        while uncollected:
            uncollected = uncollected[await self._replies.collect_large(self._connection, self._keys, uncollected) :]
        waiting = self._replies.waiting(request_ids)
        outstanding = [(request, refs) for request in waiting if (refs := request.sought_refs())]
        if not outstanding:
            return
        queries = [
            OutstandingRequest(request.request_id, tuple(ref for _, ref in refs)) for request, refs in outstanding
        ]
        epoch, results = await producer.reconcile(self._connection, self._keys, queries)
        num_lost = 0
        for (request, refs), result in zip(outstanding, results, strict=True):
            for data in result.replies:
                self._replies.deliver(data)
            if request.done:
                continue
            present = {position for (position, _), is_present in zip(refs, result.present, strict=True) if is_present}
            absent = {position: ref for position, ref in reversed(refs) if position not in present}  # its present refs
            if lost := self._remove_lost(request, absent):
                num_lost += len(lost)
                self._submitter.add(PendingSubmit(request, lost, exempt=True, epoch=epoch))
        if num_lost:
            limited_log.write(
                logging.WARNING,
                "lost entries are submitted again",
                lambda: {"n": num_lost},
                queue=self._keys.queue,
                redis=self._address,
            )

    def _remove_lost(self, request: InFlight, refs: Mapping[int, Ref]) -> tuple[NewEntry, ...]:
        """Returns the entries at these positions that are to be added again; for others it is too early."""
        now = asyncio.get_running_loop().time()
        lost = []
        for position, ref in refs.items():
            if wait_s := request.resubmit_wait_s(position, now):
                self.postpone(request, wait_s)
            elif (entry := request.remove_lost(position, ref, now)) is not None:
                lost.append(entry)
        return tuple(lost)

    def postpone(self, request: InFlight, wait_s: float = STALE_PAUSE_S) -> None:
        """Reconciles a request after a time, unless that is under way."""
        if request not in self._postponed:
            self._postponed.add(request)
            asyncio.get_running_loop().call_later(wait_s, self._resume, request)

    def _resume(self, request: InFlight) -> None:
        self._postponed.discard(request)
        self._replies.defer(request)
