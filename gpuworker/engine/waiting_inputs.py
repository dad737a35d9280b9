"""The tokenized inputs that wait for a batch. Inputs with the same content share one row, and are computed once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from gpuworker.engine.work import Batch, BatchRow, InputItem
from gpuworker.policy.batching import Plan, SchedulerState, plan
from gpuworker.policy.bulk_limit import BulkBatchLimit
from gpuworker.policy.composition import CompositionContext, WaitingInput
from gpuworker.policy.fair_share import DeficitCounter
from gpuworker.policy.limits import Limits
from gpuworker.policy.short_first import has_turn, is_long, long_since_short

MIN_VISIBLE = 256
VISIBLE_BATCHES = 4
VISIBLE_PACKED_BATCHES = 2
"""A plan sees this number of full batches of each lane, from the oldest inputs on, so that its time does not depend on
how many wait. VISIBLE_BATCHES, and at least MIN_VISIBLE texts, are enough to find texts of similar length. Without
padding inputs run in the order of arrival: then the second batch takes the place of inputs that would be late."""

LANES = SHORT, LONG, BULK, SUSPECT = range(4)
"""The lanes: short and long interactive inputs (policy.short_first), bulk, and suspects."""


class WaitingInputs:
    """The waiting inputs, each lane in the order of arrival. The caller holds a lock.

    A row is in the first lane of LANES that any of its inputs belongs to.

    Args:
        limits: as set: how the lanes take turns, and how much room a batch has for bulk beside interactive inputs.
        num_runners: how many batches run at once.

    Attributes:
        tokens: those of all rows, without padding.
        bulk_first: whether it was bulk's turn at the last plan.
        passes_over: whether the batch that was taken last leaves long inputs waiting, in favor of short ones.
        ready: a batch that was taken, and has not begun.
    """

    def __init__(self, limits: Limits, num_runners: int) -> None:
        self._lanes: list[dict[object, BatchRow]] = [{} for _ in LANES]
        max_padded = max(MIN_VISIBLE, VISIBLE_BATCHES * limits.max_size)
        self._max_visible = VISIBLE_PACKED_BATCHES * limits.max_size if limits.packed else max_padded
        self._deficit = DeficitCounter(limits.bulk_share, limits.bulk_age_bound_s)
        self._bulk_limit = BulkBatchLimit(limits.bulk_stretch, num_runners)
        self.tokens = 0
        self.bulk_first = False
        self.ready: Batch | None = None
        self._ready_planned_at, self._ready_bulk_first = 0.0, False
        self._limits = limits
        self.passes_over = self._ready_passes_over = self._ready_passed_over = self._ready_goes = False
        self._long_since_short = math.inf
        self._expected_s, self._bulk_runs = 0.0, False

    def __bool__(self) -> bool:
        return any(self._lanes)

    @property
    def has_work(self) -> bool:
        """Whether any input waits, in a row or in the batch that is ready."""
        return bool(self) or self.ready is not None

    def add(self, items: Iterable[InputItem]) -> None:
        """Adds inputs, each to the row of its content. A suspect gets a row that it shares with no other input."""
        for item in items:
            lane = self._lane_of(item.waiting)
            if lane == SUSPECT:
                self._put((item.task.key, item.input_index), BatchRow([item]), lane)
            else:
                self._join(item, lane)

    def plan(self, limits: Limits, now: float, *, busy: bool, suspects_had_turn: bool) -> Plan:
        """Returns what to do now; its indices are those of the visible rows."""
        owed = self._deficit.tokens_owed(now)
        self.bulk_first = owed > 0
        state = SchedulerState(busy, suspects_had_turn, owed, self._long_since_short)
        limits = limits._replace(max_bulk_tokens=self._bulk_limit.max_bulk_tokens(limits.costs, now))
        return plan([row.waiting for _, row in self._visible()], limits, now, state)

    def take(self, plan: Plan, now: float) -> tuple[tuple[BatchRow, ...], list[InputItem]]:
        """Removes and returns the rows of a plan's batch; also returns the inputs that expire."""
        visible, until = list(self._visible()), now + plan.seconds
        self._expected_s, self.passes_over = plan.seconds, plan.passes_over
        late = [item for i in plan.expired for item in visible[i][1].items if item.waiting.deadline <= until]
        return tuple(self._pop(visible[i][0]) for i in plan.batch), late

    def record_start(self, rows: Iterable[BatchRow], now: float) -> None:
        """Records that a batch begins, which was planned or taken last, so that the lanes take turns."""
        batch = [row.waiting for row in rows]
        interactive = [each.tokens for each in batch if not each.bulk]
        interactive_tokens = sum(interactive)
        bulk_tokens = sum(each.tokens for each in batch) - interactive_tokens
        self._bulk_runs = bulk_tokens > 0
        self._bulk_limit.record_start(len(interactive), interactive_tokens, bulk_tokens, now)
        self._long_since_short = long_since_short(
            self._long_since_short, batch, self._limits, passes_over=self.passes_over or self._ready_passed_over
        )
        bulk_first = self.bulk_first and bulk_tokens > 0
        self._deficit.record(
            interactive_tokens, bulk_tokens, bulk_first=bulk_first, bulk_waits=bool(self._lanes[BULK]), now=now
        )

    def would_be_outranked(self, now: float) -> bool:
        """Whether a batch that is made ready now would probably be put back.

        That is so if the running batch contains bulk, so that the next one does too, and an interactive input is
        expected before the next one begins.
        """
        return self._bulk_runs and self._bulk_limit.expected_inputs(self._expected_s, now) >= 1

    def hold_ready(self, ready: Batch, planned_at: float, *, bulk_first: bool, passes_over: bool) -> None:
        """Holds a batch ready, with the time at which it was planned, whether it was bulk's turn, and `passes_over`."""
        self.ready, self._ready_planned_at, self._ready_bulk_first = ready, planned_at, bulk_first
        self._ready_passes_over, self._ready_goes = passes_over, False

    def let_ready_go(self) -> bool:
        """Lets the batch that is held ready go next, before any short inputs; returns whether there is one."""
        self._ready_goes = self.ready is not None
        return self._ready_goes

    def take_ready(self, limits: Limits, now: float) -> Batch | None:
        """Returns the batch that is held ready; None if there is none, or if another one goes before it.

        If bulk in it would delay inputs that came since, puts it back. If long inputs in it would delay short ones, it
        stays ready, and a batch of these goes first, until it is the turn of the long ones (policy.short_first).
        """
        ready = self.ready
        if ready is None:
            return None
        self._ready_passed_over = not self._ready_goes and self._would_delay_short(ready, limits, now)
        if self._ready_passed_over:
            return None
        self.ready = None
        outranked = any(row.waiting.bulk for row in ready.rows) and any(
            row.items[-1].ready_at > self._ready_planned_at
            for lane in (SHORT, LONG)
            for row in self._lanes[lane].values()
        )
        if outranked and not self._ready_bulk_first:
            self._put_back(ready.rows)
            return None
        self.bulk_first, self.passes_over = self._ready_bulk_first, self._ready_passes_over
        return ready

    def _would_delay_short(self, ready: Batch, limits: Limits, now: float) -> bool:
        """Whether the ready batch has long interactive inputs that do not have their turn, and short ones wait."""
        waiting = [row.waiting for row in ready.rows if not row.waiting.bulk]
        long = [each.since for each in waiting if is_long(each, limits)]
        if not long or has_turn(min(long), CompositionContext(limits, now, 0, self._long_since_short)):
            return False
        return bool(self._lanes[SHORT])

    def remove_closed(self) -> None:
        """Removes the inputs of entries that have ended. A row moves to the lane of those that are left."""
        for number, lane in enumerate(self._lanes):
            for key, row in list(lane.items()):
                if any(item.task.closed for item in row.items):
                    row.items, first = [item for item in row.items if not item.task.closed], row.items[0]
                    if not row.items:
                        del lane[key]
                        self.tokens -= first.encoded.tokens
                    elif (new := self._lane_of(row.waiting)) != number:
                        self._lanes[new][key] = lane.pop(key)

    def _lane_of(self, waiting: WaitingInput) -> int:
        if waiting.suspect:
            return SUSPECT
        if waiting.bulk:
            return BULK
        return LONG if is_long(waiting, self._limits) else SHORT

    def _find(self, key: object) -> int | None:
        """Returns the lane of the row with this key."""
        for number, lane in enumerate(self._lanes):  # not a generator, which takes three times as long for each input
            if key in lane:
                return number
        return None

    def _join(self, item: InputItem, lane: int) -> None:
        key = item.content
        present = self._find(key)
        if present is None:
            self._put(key, BatchRow([item]), lane)
            return
        self._lanes[present][key].items.append(item)
        if lane < present:
            self._lanes[lane][key] = self._lanes[present].pop(key)

    def _put(self, key: object, row: BatchRow, lane: int) -> None:
        self._lanes[lane][key] = row
        self.tokens += row.encoded.tokens

    def _pop(self, key: object) -> BatchRow:
        lane = self._find(key)
        assert lane is not None  # noqa: S101 - it is waiting
        row = self._lanes[lane].pop(key)
        self.tokens -= row.encoded.tokens
        return row

    def _visible(self) -> Iterator[tuple[object, BatchRow]]:
        """Returns the rows that a plan chooses from, with their keys."""
        short, long, bulk = (islice(self._lanes[lane].items(), self._max_visible) for lane in (SHORT, LONG, BULK))
        return chain(short, long, self._lanes[SUSPECT].items(), bulk)

    def _put_back(self, rows: Iterable[BatchRow]) -> None:
        """Puts rows back where they were, before all that came since, without inputs of entries that have ended.

        Thousands of rows may have come since: those stay as they are.
        """
        first: list[dict[object, BatchRow]] = [{} for _ in LANES]
        for row in rows:
            row.items = [item for item in row.items if not item.task.closed]
            if not row.items:
                continue
            key = row.items[0].content
            if self._find(key) is not None:
                row.items += self._pop(key).items
            first[self._lane_of(row.waiting)][key] = row
            self.tokens += row.encoded.tokens
        self._lanes = [before | lane for before, lane in zip(first, self._lanes, strict=True)]
