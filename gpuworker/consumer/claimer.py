"""Claims entries up to the worker's credit, and sends them to the engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace

import structlog

from gpuworker import metrics
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.inflight import InFlightEntry, key_of
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.ipc.engine_process import EngineProcess
from gpuworker.ipc.messages import AddEntries, EngineEntry
from gpuworker.model_spec import counts_inputs
from gpuworker.policy.credits import Credit, compute_credit, min_held_tokens
from gpuworker.policy.fair_share import DeficitCounter
from gpuworker.policy.retries import RetryDecision, decide_retry
from shared import consumer
from shared.codec import CodecError, decode_body
from shared.connection import BLOCK_S, RedisConnection
from shared.consumer import ClaimBudget, ClaimResult, ReclaimQuery
from shared.errors import DeadlineExceededError, InputFailedError, InternalError, RedisUnreachableError
from shared.keys import BULK, INTERACTIVE, LANES
from shared.messages import DEFAULT_OPTIONS, OPS, VERSION, Entry, FailureOrigin, Ref
from shared.process.backoff import Backoff
from shared.process.limited_log import LimitedLog
from shared.process.tasks import wait_for_event
from shared.redis_errors import GroupMissingError

log, limited_log = structlog.get_logger(), LimitedLog()

RETRY_MIN_S = 0.05
RETRY_MAX_S = 1.0
LOADING_PAUSE_S = 0.2
MAX_CLAIM = 512
"""Maximum entries of one claim. Redis runs nothing else meanwhile, for about 5 µs each."""

FRAME_ENTRIES = 16
"""Entries in a frame. With the limit of an entry's body, this keeps a frame within its own limit."""

DEADLINE_MESSAGE = "The deadline passed while the request waited."
GIVEN_UP_MESSAGE = "The engine died each time that it ran this input."
HUNG_MESSAGE = (
    "The model hangs: a batch with this input ran for {ran_s:.1f} s, until a limit of {limit_s:.1f} s ended it. "
    "engine_hang_s is the minimum of this limit."
)

FULL_PAUSE_S = 1.0
SHARE_PAUSE_S = 0.02
"""When to look again after entries were left to other workers as their share."""

QUIET_S = 0.0003
"""A worker that had to wait this long for an entry waits for the next one too, without claiming more at once.

Unless the entry is older than that wait: then Redis is slow, and more entries may wait there."""


class Claimer:
    """Brings entries from Redis to the engine.

    Args:
        worker_state: of the worker.
        connection: used by the claimer only.
        reclaim_connection: the connection over which the reclaimer takes entries over for this claimer.
        engine: runs the entries.
        committer: answers the entries that are not to run.
    """

    def __init__(
        self,
        worker_state: WorkerState,
        connection: RedisConnection,
        reclaim_connection: RedisConnection,
        engine: EngineProcess,
        committer: Committer,
    ) -> None:
        self._worker_state = worker_state
        self._connection = connection
        self._reclaim_connection = reclaim_connection
        self._engine = engine
        self._committer = committer
        self.batch_tokens = 1_024
        self._has_tokens = not counts_inputs(worker_state.settings.model)
        self.stopping = False
        self._must_recover = True  # a worker that comes back under its old name may have left entries pending
        self._restarted = True
        self._is_quiet = False
        bulk = worker_state.settings.bulk
        self._deficit = DeficitCounter(bulk.share, bulk.age_bound_s)

    async def run(self) -> None:
        """Claims until `stopping` is set. After an error of Redis it first reads the worker's own pending entries."""
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while not self.stopping:
            try:
                await self._claim_or_join()
                self._worker_state.refused_calls.discard("claim")
                backoff.reset()
            except RedisUnreachableError as error:
                self._must_recover = True
                self._worker_state.refused_calls.add("claim")
                limited_log.write(logging.WARNING, "cannot claim", reason=error.log_message)
                await backoff.wait()

    async def _claim_or_join(self) -> None:
        try:
            if self._must_recover:
                await self._recover()
            await self._claim_once()
        except GroupMissingError:
            self._must_recover = True
            if await consumer.join(self._connection, self._worker_state.keys):
                log.info("consumer group created", queue=self._worker_state.keys.queue)

    @property
    def _can_take(self) -> bool:
        return self._engine.ready and not self.stopping and not self._worker_state.standby

    def _credit(self, lane: int) -> Credit | None:
        """Returns what may be claimed of a lane now; nothing while no engine can run it, or the worker stands by."""
        if not self._can_take:
            return None
        worker_state = self._worker_state
        max_entries = worker_state.circuit.max_entries(time.monotonic(), len(worker_state.in_flight))
        if max_entries is not None:
            return Credit(max_entries, self.batch_tokens) if max_entries else None
        held, settings = worker_state.in_flight.held_load(lane), worker_state.settings
        min_tokens = min_held_tokens(held, self.batch_tokens, settings.max_batch_size, has_tokens=self._has_tokens)
        window, is_alone = settings.effective_claim_window, worker_state.workers <= 1
        return compute_credit(held, window, worker_state.tokens_per_s, min_tokens, is_alone=is_alone)

    def _claim_budget(self) -> ClaimBudget | None:
        allowed, bulk = self._credit(INTERACTIVE), self._credit(BULK) or Credit(0, 0)
        if allowed is None:
            return None
        worker_state, owed = self._worker_state, self._deficit.tokens_owed(time.monotonic())
        held = worker_state.in_flight.held_load(INTERACTIVE).entries
        return ClaimBudget(
            min(allowed.entries, MAX_CLAIM),
            allowed.tokens,
            worker_state.workers,
            held,
            bulk.entries,
            bulk.tokens,
            owed,
            len(worker_state.in_flight) - held,
        )

    def reclaim_capacity(self) -> int:
        """Returns how many entries may be taken over from other workers now.

        They have a window apart from that of claims, which is always full under load: what another worker left behind
        is older than anything that could be claimed.
        """
        if not self._can_take:
            return 0
        num_held = len(self._worker_state.in_flight)
        max_entries = self._worker_state.circuit.max_entries(time.monotonic(), num_held)
        if max_entries is not None:
            return max_entries
        return max(0, 2 * self._worker_state.settings.effective_claim_window - num_held)

    async def _claim_once(self) -> None:
        worker_state = self._worker_state
        worker_state.in_flight.capacity_freed.clear()
        budget = self._claim_budget()
        if budget is None:
            await wait_for_event(
                worker_state.in_flight.capacity_freed, FULL_PAUSE_S if self._engine.ready else LOADING_PAUSE_S
            )
            return
        if self._is_quiet:
            await self._await_entry(budget)
            return
        claimed = await consumer.claim(self._connection, worker_state.keys, worker_state.worker, budget)
        worker_state.clock.observe(claimed.now_ms)
        self._record_claim(claimed, bulk_first=budget.bulk_owed > 0)
        if claimed.entries or claimed.malformed:
            self.accept(claimed)
        elif claimed.remaining[INTERACTIVE]:  # the share of other workers
            await wait_for_event(worker_state.in_flight.capacity_freed, SHARE_PAUSE_S)
        else:
            await self._await_entry(budget._replace(bulk_entries=0) if claimed.remaining[BULK] else budget)

    def _record_claim(self, claimed: ClaimResult, *, bulk_first: bool) -> None:
        bulk = sum(entry.ref.cost for entry in claimed.entries if entry.ref.lane == BULK)
        interactive = sum(entry.ref.cost for entry in claimed.entries) - bulk
        self._deficit.record(
            interactive, bulk, bulk_first=bulk_first, bulk_waits=claimed.remaining[BULK] > 0, now=time.monotonic()
        )

    async def _await_entry(self, budget: ClaimBudget) -> None:
        """Waits for the next entry. While there is no room for bulk, waits for an interactive one, and only briefly."""
        if self._must_recover:
            return
        began = time.monotonic()
        room = min(budget.bulk_entries, budget.bulk_tokens) > 0
        lanes, timeout_s = (len(LANES), BLOCK_S) if room else (1, SHARE_PAUSE_S)
        claimed = await consumer.await_entry(
            self._connection, self._worker_state.keys, self._worker_state.worker, lanes, timeout_s
        )
        entries = [each for each in claimed if isinstance(each, Entry)]
        waited = room and time.monotonic() - began >= QUIET_S
        self._is_quiet = waited and all(self._submitted(each) >= began for each in entries)
        self._accept(claimed)

    def _submitted(self, entry: Entry) -> float:
        """Returns when an entry was submitted, on this host's monotonic clock."""
        return self._worker_state.clock.to_monotonic(int(entry.ref.entry_id.split(b"-")[0]))

    def recover_soon(self) -> None:
        """Has this worker's own pending entries read before the next claim: some may not be in flight here."""
        self._must_recover = True
        self._worker_state.in_flight.capacity_freed.set()

    async def request_recovery(self) -> None:
        """Does so at once; raises RedisUnreachableError if Redis does not answer, and recovers when it does again."""
        self.recover_soon()
        await self._reclaim_connection.unblock(self._connection)

    async def _recover(self) -> None:
        """Finds entries that are pending for this worker but not in flight, such as those of a lost reply."""
        worker_state = self._worker_state
        self._must_recover = False  # before the search: more may be lost meanwhile
        for connection in (self._connection, self._reclaim_connection):
            await worker_state.control.kill(connection)
        found: list[Entry | Ref] = []
        search = ReclaimQuery(0, worker_state.worker, MAX_CLAIM, self._restarted, worker_state.revision)
        while True:
            claimed = await consumer.reclaim(
                self._connection, worker_state.keys, worker_state.worker, worker_state.clock.now_ms(), search
            )
            if claimed is None:
                self._must_recover = True
                return
            worker_state.clock.observe(claimed.now_ms)
            # The search also returns what is in flight: what is answered while it goes on must not run again.
            found += [each for each in claimed.entries if key_of(each) not in worker_state.in_flight]
            found += claimed.malformed
            if not claimed.cursor:
                break
            search = replace(search, cursor=claimed.cursor)
        self._restarted = False
        # Not before the last page: an entry that began would replace the record of what this worker began before.
        self._accept(found)

    def accept(self, claimed: ClaimResult) -> None:
        """Adds claimed entries to those in flight, and sends them to the engine."""
        self._accept((*claimed.entries, *claimed.malformed))

    def _accept(self, claimed: Iterable[Entry | Ref]) -> None:
        accepted = []
        for each in claimed:
            if isinstance(each, Ref):
                self._committer.discard(each)
            elif key_of(each) not in self._worker_state.in_flight:
                in_flight_entry = self._admit(each)
                if in_flight_entry is not None:
                    accepted.append(in_flight_entry)
        self.send_to_engine(accepted)

    def _admit(self, entry: Entry) -> InFlightEntry | None:
        """Returns the in-flight entry if it is to run; otherwise has it answered, or hands it back to other workers."""
        in_flight_entry = self._worker_state.in_flight.add(entry, (), self._submitted(entry))
        if self._worker_state.clock.to_monotonic(entry.deadline_ms) <= time.monotonic():
            origin = FailureOrigin(unrun=not entry.attempts)
            self._committer.fail(in_flight_entry, DeadlineExceededError.code, DEADLINE_MESSAGE, origin=origin)
        elif entry.revision not in ("", self._worker_state.revision) or self._worker_state.standby or self._is_open():
            self._committer.hand_back([entry])
        elif entry.version != VERSION:
            self._committer.refuse(entry)
        else:
            return self._decode(in_flight_entry)
        return None

    def _is_open(self) -> bool:
        """Whether the circuit is open, or the entry that it tries is held already: the last one was just added."""
        return self._worker_state.circuit.max_entries(time.monotonic(), len(self._worker_state.in_flight) - 1) == 0

    def _decode(self, in_flight_entry: InFlightEntry) -> InFlightEntry | None:
        """Decodes the body of an entry; returns None if it cannot run, which is then answered or refused."""
        entry = in_flight_entry.entry
        try:
            body = decode_body(entry.body)
        except CodecError:
            self._committer.fail(in_flight_entry, InternalError.code, "The entry's body does not match its version.")
            return None
        if body.op not in OPS:
            self._committer.refuse(entry)
            return None
        if len(body.inputs) != entry.ref.n:
            self._committer.fail(
                in_flight_entry,
                InternalError.code,
                "The number of inputs in the entry's body differs from the one that the entry states.",
            )
            return None
        in_flight_entry.inputs, in_flight_entry.options, in_flight_entry.op = body.inputs, body.options, body.op
        if entry.ref.counted_bytes:
            in_flight_entry.entry = entry._replace(body=b"")  # its inputs may be long: keep them once
        return in_flight_entry

    def send_to_engine(self, in_flight_entries: Iterable[InFlightEntry]) -> None:
        """Sends entries to the engine; gives up those that have begun too often."""
        clock, max_attempts = self._worker_state.clock, self._worker_state.settings.retries.max_attempts
        entries = []
        for in_flight_entry in in_flight_entries:
            entry = in_flight_entry.entry
            if clock.to_monotonic(entry.deadline_ms) <= time.monotonic():
                message = _hung_message(in_flight_entry) or DEADLINE_MESSAGE
                origin = FailureOrigin(unrun=not entry.attempts)
                self._committer.fail(in_flight_entry, DeadlineExceededError.code, message, origin=origin)
                continue
            decision = decide_retry(entry.attempts, max_attempts if entry.num_coalesced == 1 else 1)
            if decision is RetryDecision.GIVE_UP:
                message = _hung_message(in_flight_entry) or GIVEN_UP_MESSAGE
                self._committer.fail(in_flight_entry, InputFailedError.code, message, dead_after=entry.attempts)
                continue
            suspect = decision is RetryDecision.ISOLATED
            entries.append(
                # By position: names would take twice the time.
                EngineEntry(
                    in_flight_entry.key,
                    in_flight_entry.op,
                    in_flight_entry.inputs,
                    None if in_flight_entry.options == DEFAULT_OPTIONS else in_flight_entry.options,
                    # For a suspect, the bounds on how long an input is passed over count from when it came back.
                    time.monotonic() if suspect else in_flight_entry.submitted,
                    clock.to_monotonic(entry.deadline_ms),
                    entry.attempts if suspect else 0,
                    entry.ref.lane != INTERACTIVE,
                    in_flight_entry.slot,
                    entry.ref.cost,
                )
            )
        for start in range(0, len(entries), FRAME_ENTRIES):
            self._engine.send(AddEntries(tuple(entries[start : start + FRAME_ENTRIES])))
        metrics.HELD.labels(self._worker_state.worker).set(len(self._worker_state.in_flight))


def _hung_message(in_flight_entry: InFlightEntry) -> str:
    """Returns that the last run of an entry hung; empty if it did not."""
    hang = in_flight_entry.hang
    return "" if hang is None else HUNG_MESSAGE.format(ran_s=hang.ran_s, limit_s=hang.limit_s)
