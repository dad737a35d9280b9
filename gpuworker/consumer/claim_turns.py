"""The turns in which a worker claims from its shards, so that all of them together take up its credit once."""

from __future__ import annotations

import asyncio

from gpuworker.policy.claim_order import ClaimOrder
from gpuworker.policy.fair_share import DeficitCounter
from gpuworker.settings_groups import BulkSettings

MAX_TURN_S = 0.01
"""A claim that takes longer delays those from other shards no more: its Redis may be away."""


class ClaimTurns:
    """Gives turns to the claimers of a worker, one at a time.

    Args:
        num_shards: number of the shards, each with a claimer.
        bulk: what the bulk lane gets.

    Attributes:
        order: which of the claimers that wait is the next.
        deficit: what bulk is owed, over all shards.
    """

    def __init__(self, num_shards: int, bulk: BulkSettings) -> None:
        self._is_alone = num_shards == 1
        self.order = ClaimOrder(num_shards)
        self.deficit = DeficitCounter(bulk.share, bulk.age_bound_s)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._holder: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, shard: int) -> None:
        """Waits for the turn of a shard. If several were woken by the same event, their order decides."""
        if self._is_alone:
            return
        loop = asyncio.get_running_loop()
        turn = self._waiting[shard] = loop.create_future()
        loop.call_soon(self._grant)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(shard, None)
            self.release(shard)
            raise

    def release(self, shard: int) -> None:
        """Ends the turn of a shard, unless it has ended because it took too long."""
        if self._holder == shard:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._holder = self._timer = None
        self._grant()

    def _grant(self) -> None:
        if self._holder is not None or not self._waiting:
            return
        self._holder = self.order.choose(self._waiting)
        turn = self._waiting.pop(self._holder)
        if not turn.done():  # it may be cancelled, and release it soon
            turn.set_result(None)
        self._timer = asyncio.get_running_loop().call_later(MAX_TURN_S, self._end_turn)
