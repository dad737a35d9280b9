"""Reconcile: the gateway's only recovery. It checks each outstanding request and adds lost entries again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import structlog

from api import metrics
from api.dispatch.inflight import InFlight
from api.dispatch.replies import Replies
from api.dispatch.submitter import PendingSubmit, Submitter
from shared import producer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.backoff import Backoff
from shared.process.limited_log import LimitedLog
from shared.producer import OutstandingRequest
from shared.redis_errors import UnexpectedReplyError

log, limited_log = structlog.get_logger(), LimitedLog()

CHUNK_REQUESTS = 64


class Reconciler:
    """Recovers requests whose replies may have been lost.

    Args:
        connection: used only by the reconciler.
        keys: Redis keys of the queue.
        submitter: adds lost entries again.
        replies: delivers replies; a lock that it holds while they are on their way from Redis is held here, too, so
            that none of them is considered lost.
    """

    def __init__(
        self,
        connection: RedisConnection,
        keys: Keys,
        submitter: Submitter,
        replies: Replies,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._submitter = submitter
        self._replies = replies

    async def reconcile_after_break(
        self, broken: Iterable[RedisConnection], requests: Callable[[], Iterable[InFlight]], backoff: Backoff
    ) -> None:
        """Reconciles the requests that wait on broken connections, once Redis answers again.

        The caller uses its connection again right after this call: it resets `backoff` when that succeeds.

        `requests` is called when Redis can send no more replies to the broken connections. A request with entries that
        are not known to be in the stream yet gets `reconcile_on_submit`: it is reconciled once they are there.

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
                unanswered = [request for request in requests() if not request.done]
                for request in unanswered:
                    request.reconcile_on_submit = request.reconcile_on_submit or request.has_unplaced_entries
                await self.reconcile(unanswered, cause="connection")
            except UnexpectedReplyError as error:  # it may go on for ever, as for want of a permission
                limited_log.write(logging.ERROR, "requests cannot be reconciled", reason=error.log_message)
            except RedisUnreachableError:
                pass
            else:
                return

    async def reconcile(self, requests: Iterable[InFlight], cause: str) -> None:
        """Delivers the replies that are in Redis; adds each entry again that has no reply and is not in the stream.

        Raises:
            RedisUnreachableError: Redis did not answer; call this again.
        """
        unanswered = list(requests)
        metrics.RECONCILIATIONS.labels(cause).inc()
        for start in range(0, len(unanswered), CHUNK_REQUESTS):
            async with self._replies.collect_lock:
                await self._reconcile_chunk(unanswered[start : start + CHUNK_REQUESTS])

    async def _reconcile_chunk(self, requests: list[InFlight]) -> None:
        """Collects replies with their bound in bytes before: the reconcile call itself has none, and finds the rest."""
        request_ids = [request.request_id for request in requests if not request.done]
        while request_ids:
            request_ids = request_ids[await self._replies.collect_large(self._connection, self._keys, request_ids) :]
        outstanding = [(request, refs) for request in requests if not request.done and (refs := request.outstanding())]
        if not outstanding:
            return
        queries = [OutstandingRequest(request.request_id, tuple(refs.values())) for request, refs in outstanding]
        results = await producer.reconcile(self._connection, self._keys, queries)
        lost = 0
        for (request, refs), result in zip(outstanding, results, strict=True):
            for data in result.replies:
                self._replies.deliver(data)
            if request.done:
                continue
            absent = [pair for pair, is_present in zip(refs.items(), result.present, strict=True) if not is_present]
            new_entries = tuple(entry for pair in absent if (entry := request.remove_lost(*pair)) is not None)
            if new_entries:
                lost += len(new_entries)
                self._submitter.add(PendingSubmit(request, new_entries, exempt=True))
        if lost:
            metrics.RESUBMITTED_ENTRIES.inc(lost)
            log.warning("lost entries are submitted again", n=lost)
