"""Claims entries of a shard, up to the worker's credit."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import structlog

from gpuworker.consumer.claim_turns import ClaimTurns
from gpuworker.consumer.entry_intake import EntryIntake
from gpuworker.consumer.worker_state import CLAIM, ShardState
from gpuworker.ipc.engine_process import EngineProcess
from gpuworker.model_spec import counts_inputs
from gpuworker.policy.credits import Credit, compute_credit, min_held_tokens
from shared import consumer
from shared.connection import BLOCK_S, RedisConnection
from shared.consumer import ClaimBudget, ClaimResult, ReclaimQuery
from shared.errors import RedisUnreachableError
from shared.keys import BULK, INTERACTIVE, LANES
from shared.messages import Entry, Ref
from shared.process.backoff import Backoff
from shared.process.limited_log import LimitedLog
from shared.process.tasks import wait_for_event
from shared.redis_errors import GroupMissingError

log, limited_log = structlog.get_logger(), LimitedLog()

RETRY_MIN_S = 0.05
RETRY_MAX_S = 1.0
LOADING_PAUSE_S = 0.2
UNCOMMITTED_CLAIMS_S = 1.0
"""How long entries are claimed while no answer reaches Redis: in a planned failover each connection is lost for less,
and claims that waited for that of the commits would come later than it."""

MAX_CLAIM = 512
"""Maximum entries of one claim. Redis runs nothing else meanwhile, for about 5 µs each."""

FULL_PAUSE_S = 1.0
SHARE_PAUSE_S = 0.02
"""When to look again after entries were left to other workers as their share."""

QUIET_S = 0.0003
"""A worker that had to wait this long for an entry waits for the next one too, without claiming more at once.

Unless the entry is older than that wait: then Redis is slow, and more entries may wait there."""


class Claimer:
    """Claims the entries of a shard.

    Args:
        shard: whose entries are claimed.
        connection: used by the claimer only.
        reclaim_connection: the connection over which the reclaimer takes entries over.
        engine: runs the entries.
        intake: takes what is claimed.
        turns: in which the worker claims from its shards.
    """

    def __init__(
        self,
        shard: ShardState,
        connection: RedisConnection,
        reclaim_connection: RedisConnection,
        engine: EngineProcess,
        intake: EntryIntake,
        turns: ClaimTurns,
    ) -> None:
        self._shard, self._worker_state = shard, shard.worker_state
        self._connection = connection
        self._reclaim_connection = reclaim_connection
        self._engine = engine
        self._intake = intake
        self._capacity_freed = self._worker_state.in_flight.capacity_freed[shard.number]
        self._has_tokens = not counts_inputs(self._worker_state.settings.model)
        self._must_recover = True  # a worker that comes back under its old name may have left entries pending
        self._restarted = True
        self._is_quiet = False
        self._turns = turns

    async def run(self) -> None:
        """Claims until the worker is stopping. After an error it first reads the worker's own pending entries."""
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while not self._worker_state.stopping:
            try:
                await self._claim_or_join()
                self._shard.record_call(CLAIM, is_answered=True)
                backoff.reset()
            except RedisUnreachableError as error:
                self._must_recover = True
                self._shard.record_call(CLAIM, is_answered=False)
                self._turns.order.forget(self._shard.number)
                limited_log.write(logging.WARNING, "cannot claim", reason=error.log_message, redis=self._shard.address)
                await backoff.wait()

    async def _claim_or_join(self) -> None:
        try:
            if self._must_recover:
                await self._recover()
            await self._claim_once()
        except GroupMissingError:
            self._must_recover = True
            if await consumer.join(self._connection, self._shard.keys):
                log.info("consumer group created", queue=self._shard.keys.queue, redis=self._shard.address)

    @property
    def _can_take(self) -> bool:
        state, since = self._worker_state, self._shard.uncommitted_since
        can_answer = since is None or time.monotonic() - since < UNCOMMITTED_CLAIMS_S  # it keeps what it cannot answer
        return self._engine.ready and not state.stopping and not state.standby and can_answer

    @property
    def _num_held(self) -> int:
        """Number of entries that the worker holds, as far as they count for this shard."""
        return self._worker_state.in_flight.num_held(self._shard.number)

    def _credit(self, lane: int) -> Credit | None:
        """Returns what may be claimed of a lane now; nothing while no engine can run it, or the worker stands by."""
        if not self._can_take:
            return None
        worker_state, batch_tokens = self._worker_state, self._worker_state.batch_tokens
        max_entries = worker_state.circuit.max_entries(time.monotonic(), self._num_held)
        if max_entries is not None:
            return Credit(max_entries, batch_tokens) if max_entries else None
        held, settings = worker_state.in_flight.held_load(lane, self._shard.number), worker_state.settings
        min_tokens = min_held_tokens(held, batch_tokens, settings.max_batch_size, has_tokens=self._has_tokens)
        window, is_alone = settings.effective_claim_window, self._shard.workers <= 1
        return compute_credit(held, window, worker_state.tokens_per_s, min_tokens, is_alone=is_alone)

    def _claim_budget(self) -> ClaimBudget | None:
        allowed, bulk = self._credit(INTERACTIVE), self._credit(BULK) or Credit(0, 0)
        if allowed is None:
            return None
        shard, in_flight = self._shard, self._worker_state.in_flight
        bulk_owed = self._turns.deficit.tokens_owed(time.monotonic())
        max_bulk_tokens = bulk_owed if self._turns.order.is_urgent_beside(shard.number) else bulk.tokens
        return ClaimBudget(
            min(allowed.entries, MAX_CLAIM),
            allowed.tokens,
            shard.workers,
            in_flight.num_entries(shard.number, INTERACTIVE),
            bulk.entries,
            min(bulk.tokens, max_bulk_tokens),
            bulk_owed,
            in_flight.num_entries(shard.number, BULK),
        )

    def reclaim_capacity(self) -> int:
        """Returns how many entries may be taken over from other workers now.

        They have a window apart from that of claims, which is always full under load: what another worker left behind
        is older than anything that could be claimed.
        """
        if not self._can_take:
            return 0
        num_held = self._num_held
        max_entries = self._worker_state.circuit.max_entries(time.monotonic(), num_held)
        if max_entries is not None:
            return max_entries
        return max(0, 2 * self._worker_state.settings.effective_claim_window - num_held)

    async def _claim_once(self) -> None:
        self._capacity_freed.clear()
        if self._is_quiet and (budget := self._claim_budget()) is not None:
            await self._await_entry(budget)
            return
        await self._turns.acquire(self._shard.number)
        try:
            budget = self._claim_budget()
            claimed = None if budget is None else await self._claim(budget)
        finally:
            self._turns.release(self._shard.number)
        if claimed is None or budget is None:
            await wait_for_event(self._capacity_freed, FULL_PAUSE_S if self._engine.ready else LOADING_PAUSE_S)
        elif claimed.entries or claimed.malformed:
            return
        elif claimed.remaining[INTERACTIVE]:  # the share of other workers
            await wait_for_event(self._capacity_freed, SHARE_PAUSE_S)
        else:
            await self._await_entry(budget._replace(bulk_entries=0) if claimed.remaining[BULK] else budget)

    async def _claim(self, budget: ClaimBudget) -> ClaimResult:
        claimed = await consumer.claim(self._connection, self._shard.keys, self._worker_state.worker, budget)
        self._shard.clock.observe(claimed.now_ms)
        bulk_waits = claimed.remaining[BULK] > 0
        bulk = sum(entry.ref.cost for entry in claimed.entries if entry.ref.lane == BULK)
        interactive = sum(entry.ref.cost for entry in claimed.entries) - bulk
        order, deficit = self._turns.order, self._turns.deficit
        order.record_claim(self._shard.number, claimed.remaining, interactive)
        bulk_first = budget.bulk_owed > 0 and (bulk > 0 or bulk_waits)
        deficit.record(interactive, bulk, bulk_first=bulk_first, bulk_waits=order.bulk_waits, now=time.monotonic())
        if claimed.entries or claimed.malformed:
            self._intake.accept((*claimed.entries, *claimed.malformed))
        return claimed

    async def _await_entry(self, budget: ClaimBudget) -> None:
        """Waits for the next entry. While there is no room for bulk, waits for an interactive one, and only briefly."""
        if self._must_recover:
            return
        began = time.monotonic()
        room = min(budget.bulk_entries, budget.bulk_tokens) > 0
        lanes, timeout_s = (len(LANES), BLOCK_S) if room else (1, SHARE_PAUSE_S)
        claimed = await consumer.await_entry(
            self._connection, self._shard.keys, self._worker_state.worker, lanes, timeout_s
        )
        if claimed:
            self._turns.order.record_arrival(self._shard.number)
        entries = [each for each in claimed if isinstance(each, Entry)]
        waited = room and time.monotonic() - began >= QUIET_S
        self._is_quiet = waited and all(self._intake.submitted_at(each) >= began for each in entries)
        self._intake.accept(claimed)

    def recover_soon(self) -> None:
        """Has this worker's own pending entries read before the next claim: some may not be in flight here."""
        self._must_recover = True
        self._capacity_freed.set()

    async def request_recovery(self) -> None:
        """Does so at once; raises RedisUnreachableError if Redis does not answer, and recovers when it does again."""
        self.recover_soon()
        await self._reclaim_connection.unblock(self._connection)

    async def _recover(self) -> None:
        """Finds entries that are pending for this worker but not in flight, such as those of a lost reply."""
        shard, worker_state = self._shard, self._worker_state
        self._must_recover = False  # before the search: more may be lost meanwhile
        for connection in (self._connection, self._reclaim_connection):
            await shard.control.kill(connection)
        found: list[Entry | Ref] = []
        search = ReclaimQuery(0, worker_state.worker, MAX_CLAIM, self._restarted, worker_state.revision)
        while True:
            claimed = await consumer.reclaim(
                self._connection, shard.keys, worker_state.worker, shard.clock.now_ms(), search
            )
            if claimed is None:
                self._must_recover = True
                return
            shard.clock.observe(claimed.now_ms)
            # The search also returns what is in flight: what is answered while it goes on must not run again.
            found += [each for each in claimed.entries if not self._intake.is_in_flight(each)]
            found += claimed.malformed
            if not claimed.cursor:
                break
            search = replace(search, cursor=claimed.cursor)
        self._restarted = False
        # Not before the last page: an entry that began would replace the record of what this worker began before.
        self._intake.accept(found)
