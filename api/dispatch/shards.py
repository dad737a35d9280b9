"""Sends each request to one of the shards of a queue; those of a shard whose Redis dies, to another one.

Each shard is a whole queue on its own Redis. A request has all its entries on one shard.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from math import inf

import structlog

from api import metrics
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.dispatcher import Dispatcher, ShardLostError
from api.dispatch.shard_choice import less_busy, rendezvous_order
from api.dispatch.splitting import cost_of_request
from api.memory_budget import HeldMemory
from api.tenants import ANONYMOUS, Tenant
from shared.errors import OverloadedError, QueueFullError

log = structlog.get_logger()

CHECK_INTERVAL_S = 0.05
SILENT_AFTER_S = 0.2
"""A Redis that has answered nothing for this time while requests wait is polled at once, not at the next interval."""

HOLD_S = 0.04
"""For this time a gateway keeps to the shard that it has chosen: its requests then share calls, and workers' batches
are larger. docs/scaling.md has what Redis costs by this time."""


class ShardedDispatcher:
    """Takes requests through a queue of several shards.

    Args:
        dispatchers: one of each shard, by its number.
    """

    def __init__(self, dispatchers: Sequence[Dispatcher]) -> None:
        self._dispatchers = dispatchers
        self._tokens = [0 for _ in dispatchers]
        self._usable: list[int] = []
        self._held, self._held_until = 0, -inf

    async def run(self) -> None:
        """Watches the shards until cancelled."""
        while True:
            try:
                self.check()
            except Exception:
                log.exception("the shards cannot be checked")
            await asyncio.sleep(CHECK_INTERVAL_S)

    def check(self) -> None:
        """Notes which shards are usable, and ends requests that wait on one that is lost, if another one is usable."""
        usable = [number for number, each in enumerate(self._dispatchers) if each.is_usable]
        if usable != self._usable:
            log.info("shards that take requests", shards=usable, of=len(self._dispatchers))
            self._usable, self._held_until = usable, -inf
            for dispatcher in self._dispatchers:
                dispatcher.share_bounds(max(1, len(usable)))
        for dispatcher in self._dispatchers:
            if not dispatcher.in_flight:
                continue
            if dispatcher.is_lost:
                if usable:
                    dispatcher.abandon()
            elif dispatcher.silent_s() > SILENT_AFTER_S:
                dispatcher.monitor.begin_poll()

    async def answer(
        self, request: InferenceRequest, request_id: str = "", memory: HeldMemory | None = None
    ) -> InferenceResult:
        """Returns the result of a request, from the first shard that does not die; raises as a dispatcher does.

        A shard that is full passes the request on once, unless its tenant has a name: that shard alone counts its quota
        and its share of the fleet, and it would have both again on another one.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout_ms / 1000
        tokens, held_bytes = cost_of_request(request), memory.num_bytes if memory is not None else 0
        number, is_first = self.choose(request.tenant), True
        while True:
            self._tokens[number] += tokens
            try:
                return await self._dispatchers[number].answer(request, request_id, memory)
            except ShardLostError as error:
                metrics.MOVED_REQUESTS.inc()
                request = request._replace(was_accepted=request.was_accepted or error.was_accepted)
                other = self.choose(request.tenant)
            except (QueueFullError, OverloadedError):
                if not is_first or request.tenant is not ANONYMOUS or not set(self._usable) - {number}:
                    raise
                other, is_first = self.choose(request.tenant, other_than=number), False
            finally:
                self._tokens[number] -= tokens
            if memory is not None:
                memory.shrink(held_bytes)
            number, request_id = other, ""  # a reply under the old id may still come
            request = request._replace(timeout_ms=max(1, int((deadline - loop.time()) * 1000)))

    async def charge(self, request: InferenceRequest, tokens: int, *, may_refuse: bool) -> None:
        """Charges a tenant for cached vectors, on its shard: see `Charges.charge`."""
        charges = self._dispatchers[self.choose(request.tenant)].charges
        await charges.charge(request, tokens, may_refuse=may_refuse)

    def choose(self, tenant: Tenant, *, other_than: int = -1) -> int:
        """Returns the number of the shard for a request or a job of a tenant.

        A named tenant lives on one of those in use. All others avoid a Redis that is low on memory: it refuses them.
        """
        usable = self._usable
        if other_than in usable:
            usable = [each for each in usable if each != other_than]
        if not usable:
            return self._least_bad()
        if tenant is not ANONYMOUS:
            return next(each for each in rendezvous_order(tenant.name, len(self._dispatchers)) if each in usable)
        now = asyncio.get_running_loop().time()
        if now > self._held_until or self._held not in usable:
            draw = random.random()  # noqa: S311 - spreads requests
            roomy = [each for each in usable if not self._dispatchers[each].is_low_on_memory] or usable
            self._held, self._held_until = less_busy(roomy, self._tokens, draw), now + HOLD_S
        return self._held

    def _least_bad(self) -> int:
        """Returns the shard whose refusal says most while none is usable, or where a request may wait for its end.

        That is one with live workers; of several, the one that was away for the shortest time.
        """
        clusters = [each.monitor.cluster() for each in self._dispatchers]

        def badness(number: int) -> tuple[bool, float, float]:
            unseen_s = clusters[number].worker_unseen_s
            return unseen_s is None, clusters[number].redis_down_s, unseen_s or 0.0

        return min(range(len(clusters)), key=badness)
