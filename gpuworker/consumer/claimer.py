"""Claims entries as far as the credit goes, and brings them to the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import structlog

from gpuworker import metrics
from gpuworker.consumer.committer import Committer
from gpuworker.consumer.worker_state import Context
from gpuworker.policy.credits import Credit, credit
from gpuworker.ipc.engine_process import EngineHost
from gpuworker.consumer.inflight import Holding, key_of
from gpuworker.policy.fair_share import Turns
from gpuworker.policy.retries import Retry, retry
from shared.process.tasks import wait_for_event
from shared import consumer
from shared.codec import CodecError, decode_body
from shared.consumer import Abandoned, Allowance, Claimed
from shared.errors import DeadlineExceeded, InputFailed, InternalError, RedisUnreachable
from shared.keys import BULK, INTERACTIVE, LANES
from shared.messages import OPS, PLAIN, VERSION, Entry, Ref
from shared.connection import BLOCK_S, GroupMissing, Link

log = structlog.get_logger()

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0
LOADING_PAUSE_S = 0.2
FRAME_ENTRIES = 16
"""With the bound of a body, this keeps a frame within its own bound."""

LATE = "The deadline passed while the request waited."
GIVEN_UP = "The engine died each time that it ran this input."

FULL_PAUSE_S = 1.0
SHARE_PAUSE_S = 0.02
"""When to look again after the share of others was left to them."""

QUIET_S = 0.0003
"""A worker that had to wait so long for an entry waits for the next one too, without asking for more at once.

Unless the entry is older than that wait: then it is Redis that takes so long, and more may lie there."""


class Claimer:
    """The way of entries from Redis into the engine.

    Args:
        context: the worker.
        link: a connection of its own.
        keeper_link: another, over which the keeper takes entries for it.
        engine: runs them.
        committer: answers those that are not to run.
    """

    def __init__(
        self, context: Context, link: Link, keeper_link: Link, engine: EngineHost, committer: Committer
    ) -> None:
        self._context = context
        self._link = link
        self._keeper_link = keeper_link
        self._engine = engine
        self._committer = committer
        self.batch_tokens = 1_024
        self.stopping = False
        self._lost = True  # a worker that comes back under its old name may have left entries pending
        self._reborn = True
        self._quiet = False
        settings = context.settings
        self._turns = Turns(settings.bulk_share, settings.bulk_age_bound_ms / 1000)

    async def run(self) -> None:
        """Claims until told to stop. An error of Redis is met by reading the worker's own pending entries first."""
        pause_s = RETRY_FIRST_S
        while not self.stopping:
            try:
                if self._lost:
                    await self._recover()
                await self._claim_once()
                pause_s = RETRY_FIRST_S
            except GroupMissing:
                self._lost = True
                await self._join()
            except RedisUnreachable as error:
                self._lost = True
                log.warning("cannot claim", reason=error.message)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)

    def _credit(self, lane: int) -> Credit | None:
        """Returns what may be claimed of a lane now: nothing while no engine can run it."""
        if self.stopping or not self._engine.ready:
            return None
        context = self._context
        held = context.hands.held(lane)
        return credit(held, context.settings.claim_window, context.tokens_per_s, 2 * self.batch_tokens)

    def _allowance(self) -> Allowance | None:
        allowed, bulk = self._credit(INTERACTIVE), self._credit(BULK) or Credit(0, 0)
        if allowed is None:
            return None
        context, owed = self._context, self._turns.owed(time.monotonic())
        held = context.hands.held(INTERACTIVE).entries
        return Allowance(
            allowed.entries,
            allowed.tokens,
            context.workers,
            held,
            bulk.entries,
            bulk.tokens,
            owed,
            len(context.hands) - held,
        )

    def room(self) -> int:
        """Returns how many entries may be taken over now.

        They have a window of their own beside that of claims, which under load is full all the time: what another
        worker left behind is older than anything that could be claimed.
        """
        if self.stopping or not self._engine.ready:
            return 0
        return max(0, 2 * self._context.settings.claim_window - len(self._context.hands))

    async def _claim_once(self) -> None:
        context = self._context
        context.hands.freed.clear()
        allowance = self._allowance()
        if allowance is None:
            await wait_for_event(context.hands.freed, FULL_PAUSE_S if self._engine.ready else LOADING_PAUSE_S)
            return
        if self._quiet:
            await self._await_entry(allowance)
            return
        claimed = await consumer.claim(self._link, context.keys, context.worker, allowance)
        context.clock.saw(claimed.now_ms)
        self._took(claimed, led=allowance.bulk_owed > 0)
        if claimed.entries or claimed.malformed:
            self.accept(claimed)
        elif claimed.left[INTERACTIVE]:  # the share of others
            await wait_for_event(context.hands.freed, SHARE_PAUSE_S)
        else:
            await self._await_entry(allowance._replace(bulk_entries=0) if claimed.left[BULK] else allowance)

    def _took(self, claimed: Claimed, *, led: bool) -> None:
        bulk = sum(entry.ref.cost for entry in claimed.entries if entry.ref.lane == BULK)
        interactive = sum(entry.ref.cost for entry in claimed.entries) - bulk
        self._turns.took(interactive, bulk, led=led, waits=claimed.left[BULK] > 0, now=time.monotonic())

    async def _await_entry(self, allowance: Allowance) -> None:
        """Waits for the next entry: while there is no room for bulk, for an interactive one, and not for long."""
        if self._lost:
            return
        began = time.monotonic()
        room = min(allowance.bulk_entries, allowance.bulk_tokens) > 0
        lanes, timeout_s = (len(LANES), BLOCK_S) if room else (1, SHARE_PAUSE_S)
        found = await consumer.await_entry(self._link, self._context.keys, self._context.worker, lanes, timeout_s)
        entries = [each for each in found if isinstance(each, Entry)]
        waited = room and time.monotonic() - began >= QUIET_S
        self._quiet = waited and all(self._submitted(each) >= began for each in entries)
        self._accept(found)

    def _submitted(self, entry: Entry) -> float:
        """Returns when an entry was submitted, on this host's monotonic clock."""
        return self._context.clock.monotonic(int(entry.ref.entry_id.split(b"-")[0]))

    async def look_again(self) -> None:
        """Has this worker's own pending entries read soon: some may not be in hand.

        Raises:
            RedisUnreachable: it is done when Redis answers again.
        """
        self._lost = True
        self._context.hands.freed.set()
        await self._keeper_link.unblock(self._link)

    async def _recover(self) -> None:
        """Finds entries that are pending for this worker and not in hand, as of a reply that never came."""
        context = self._context
        self._lost = False  # before: more may be lost meanwhile
        for link in (self._link, self._keeper_link):
            await context.control.kill(link)
        most = len(context.hands) + 2 * context.settings.claim_window  # what it holds comes too, and comes first
        search = Abandoned(0, context.worker, most, self._reborn, context.revision)
        claimed = await consumer.reclaim(self._link, context.keys, context.worker, context.clock.now_ms(), search)
        if claimed is None:
            self._lost = True
            return
        self._reborn = False
        context.clock.saw(claimed.now_ms)
        self.accept(claimed)

    async def _join(self) -> None:
        try:
            if await consumer.join(self._link, self._context.keys):
                log.info("consumer group made", queue=self._context.keys.queue)
        except RedisUnreachable:
            await asyncio.sleep(RETRY_FIRST_S)

    def accept(self, claimed: Claimed) -> None:
        """Takes claimed entries in hand and brings them to the engine."""
        self._accept((*claimed.entries, *claimed.malformed))

    def _accept(self, found: Iterable[Entry | Ref]) -> None:
        taken = []
        for each in found:
            if isinstance(each, Ref):
                self._committer.discard(each)
            elif key_of(each) not in self._context.hands:
                holding = self._take(each)
                if holding is not None:
                    taken.append(holding)
        self.bring(taken)

    def _take(self, entry: Entry) -> Holding | None:
        """Returns the entry in hand if it is to run; otherwise sees to its answer, or gives it to others."""
        holding = self._context.hands.take(entry, ())
        if self._context.clock.monotonic(entry.deadline_ms) <= time.monotonic():
            self._committer.fail(holding, DeadlineExceeded.code, LATE)
        elif entry.revision not in ("", self._context.revision) or self._context.standby:
            self._committer.hand_back([entry])
        elif entry.version != VERSION:
            self._committer.refuse(entry)
        else:
            return self._read(holding)
        return None

    def _read(self, holding: Holding) -> Holding | None:
        """Takes in what an entry asks for; returns None for what cannot be done."""
        entry = holding.entry
        try:
            body = decode_body(entry.body)
        except CodecError:
            self._committer.fail(holding, InternalError.code, "The entry's body is not what its version describes.")
            return None
        if body.op not in OPS:
            self._committer.refuse(entry)
            return None
        if len(body.inputs) != entry.ref.n:
            self._committer.fail(
                holding, InternalError.code, "The entry's body does not hold as many inputs as it says."
            )
            return None
        holding.inputs, holding.options, holding.op = body.inputs, body.options, body.op
        return holding

    def bring(self, holdings: Iterable[Holding]) -> None:
        """Sends what is held to the engine; gives up on what has begun too often."""
        clock = self._context.clock
        entries = []
        for holding in holdings:
            entry = holding.entry
            if clock.monotonic(entry.deadline_ms) <= time.monotonic():
                self._committer.fail(holding, DeadlineExceeded.code, LATE)
                continue
            decision = retry(entry.attempts, self._context.settings.max_attempts)
            if decision is Retry.GIVE_UP:
                self._committer.fail(holding, InputFailed.code, GIVEN_UP, dead=True)
                continue
            suspect = decision is Retry.ALONE
            entries.append(
                {
                    "key": key_of(entry),
                    "op": holding.op,
                    "inputs": holding.inputs,
                    "options": None if holding.options == PLAIN else holding.options,
                    # The bounds on how long an input is passed over count for a suspect from when it came back.
                    "since": time.monotonic() if suspect else self._submitted(entry),
                    "deadline": clock.monotonic(entry.deadline_ms),
                    "attempts": entry.attempts if suspect else 0,
                    "bulk": entry.ref.lane != INTERACTIVE,
                }
            )
        for start in range(0, len(entries), FRAME_ENTRIES):
            self._engine.send({"kind": "add", "entries": entries[start : start + FRAME_ENTRIES]})
        metrics.HELD.labels(self._context.worker).set(len(self._context.hands))
