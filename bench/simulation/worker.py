"""A simulated worker: its claims, and its engine. Its policies are the product's own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from random import Random
from typing import NamedTuple

from bench.simulation.setup import Setup
from gpuworker.policy.adaptive_limits import AdaptiveLimits
from gpuworker.policy.batching import Plan, SchedulerState, plan
from gpuworker.policy.composition import CompositionContext, WaitingInput
from gpuworker.policy.credits import HeldLoad, compute_credit
from gpuworker.policy.limits import Limits
from gpuworker.policy.short_first import has_turn, is_long, long_since_short

ENTRY_INPUTS = 32
"""The default of the gateway's `inputs_per_entry`."""

RATE_DECAY = 0.9
"""The same value as in gpuworker.consumer.result_handler."""

Schedule = Callable[[float, Callable[[float], None]], None]
"""Schedules a callback at a time (s); it receives that time."""


@dataclass(slots=True)
class Request:
    """A request: the tokens of its inputs, and its outcome: when it was answered, and whether with a result (`ok`)."""

    sent_s: float
    inputs: tuple[int, ...]
    deadline_s: float
    num_pending: int = 0
    answered_s: float | None = None
    ok: bool = True


@dataclass(slots=True)
class Entry:
    """An entry of a request: its inputs as the plan sees them, and how many of them have no result."""

    request: Request
    inputs: tuple[WaitingInput, ...]
    tokens: int
    num_pending: int
    waiting_since_s: float = 0.0


Row = tuple[Entry, WaitingInput]
"""An input of an entry."""


def split(request: Request, submitted_s: float) -> list[Entry]:
    """Returns the entries of a request."""
    entries = []
    for start in range(0, len(request.inputs), ENTRY_INPUTS):
        lengths = request.inputs[start : start + ENTRY_INPUTS]
        number, total = len(lengths), sum(lengths)
        inputs = tuple(
            WaitingInput(each, submitted_s, request.deadline_s, entry_inputs=number, entry_tokens=total)
            for each in lengths
        )
        entries.append(Entry(request, inputs, total, number))
    request.num_pending = len(entries)
    return entries


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A batch that has run: its times, its size, its tokens without and with padding.

    `waiting_since_s` is the time from which its oldest input waited in the worker. `free_s` is the time at which the
    engine could have started it, and `num_waiting` the number of inputs that waited then.
    """

    began_s: float
    ended_s: float
    size: int
    tokens: int
    padded: int
    waiting_since_s: float
    free_s: float
    num_waiting: int


class WorkerCallbacks(NamedTuple):
    """Callbacks of a worker.

    Attributes:
        answer: receives the time (s), the answered entries, and whether they have results.
        claim: called with the time (s) when answers have freed capacity for further claims.
    """

    answer: Callable[[float, Sequence[Entry], bool], None]
    claim: Callable[[float], None]


class Worker:
    """Claims requests from the lane, and runs batches.

    Args:
        setup: the cluster's setup.
        random: source of the jitter of its device.
        schedule: schedules the events of the worker.
        callbacks: report answers and free capacity.
    """

    def __init__(self, setup: Setup, random: Random, schedule: Schedule, callbacks: WorkerCallbacks) -> None:
        self.batches: list[BatchRun] = []
        self.held = self._held_tokens = self._counted_tokens = 0
        self._setup = setup
        self._device = setup.device
        self._random = random
        self._schedule = schedule
        self._callbacks = callbacks
        self._adaptive_limits = AdaptiveLimits(setup.limits, setup.device.runners)
        self._rate_tokens = self._rate_s = 0.0
        self._was_saturated = False
        self._waiting_entries: list[Entry] = []  # of each waiting input
        self._waiting: list[WaitingInput] = []
        self._prepared: list[Row] = []
        self._prepared_passes_over = self._prepared_passed_over = False
        self._passes_over, self._long_since_short = False, math.inf
        self._free: tuple[float, int] | None = None
        self._running = self._running_tokens = 0
        self._wake_s = 0.0

    # -- claiming ------------------------------------------------------------------------------------------------------

    def claim(self, now: float, lane: deque[Entry], share: int) -> None:
        """Claims requests from the lane, up to the worker's compute_credit and `share`."""
        tokens_per_s = self._rate_tokens / self._rate_s if self._rate_s else 0.0
        held = HeldLoad(self.held, self._held_tokens, self.held, self._counted_tokens)
        window, is_alone = self._setup.claim_window, self._setup.workers == 1
        allowed = compute_credit(held, window, tokens_per_s, 2 * self._device.max_tokens, is_alone=is_alone)
        if allowed is None:
            return
        entries, tokens = min(allowed.entries, share), allowed.tokens
        claimed: list[Entry] = []
        while lane and len(claimed) < entries and tokens > 0:
            claimed.append(lane.popleft())
            tokens -= claimed[-1].tokens
        if claimed:
            self._accept(now, claimed)
            self._start_batches(now)

    def _accept(self, now: float, claimed: list[Entry]) -> None:
        self.held += len(claimed)
        self._held_tokens += sum(each.tokens for each in claimed)
        self._counted_tokens += sum(map(self._count_tokens, claimed))
        expired = [each for each in claimed if each.request.deadline_s <= now]
        if expired:
            self._answer(now, expired, ok=False)
            claimed = [each for each in claimed if each.request.deadline_s > now]
        before = len(self._waiting)
        for each in claimed:
            each.waiting_since_s = now
            self._waiting_entries += [each] * len(each.inputs)
            self._waiting += each.inputs
        self._adaptive_limits.record_arrivals(now, len(self._waiting) - before)

    def _count_tokens(self, entry: Entry) -> int:
        """Returns what an entry counts as in the worker's load: see gpuworker.policy.credits."""
        return min(entry.tokens, self._setup.limits.min_long_tokens or entry.tokens)

    def _answer(self, now: float, entries: Sequence[Entry], *, ok: bool) -> None:
        self.held -= len(entries)
        self._held_tokens -= sum(each.tokens for each in entries)
        self._counted_tokens -= sum(map(self._count_tokens, entries))
        self._callbacks.answer(now, entries, ok)
        self._schedule(now, self._callbacks.claim)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _start_batches(self, now: float) -> None:
        """Starts a prepared or planned batch on each free runner; if all are busy, prepares a full batch."""
        while self._running < self._device.runners:
            batch = self._next_batch(now)
            if not batch:
                return
            self._start(now, batch)
        if self._device.ahead and not self._prepared and self._may_be_full():
            planned = self._plan(now)
            if planned.full:
                self._prepared = self._remove(now, planned)
                self._prepared_passes_over = self._passes_over

    def _next_batch(self, now: float) -> list[Row]:
        self._prepared_passed_over = bool(self._prepared) and self._would_delay_short(self._prepared, now)
        batch = [] if self._prepared_passed_over else self._take_prepared(now)
        return batch or self._next_planned(now) or self._take_prepared(now)

    def _take_prepared(self, now: float) -> list[Row]:
        prepared, self._prepared, self._prepared_passed_over = self._prepared, [], False
        expired = {id(entry): entry for entry, each in prepared if each.deadline <= now}
        if expired:
            self._expire(now, list(expired.values()))
        if prepared:
            self._passes_over = self._prepared_passes_over
        return [row for row in prepared if id(row[0]) not in expired]

    def _next_planned(self, now: float) -> list[Row]:
        if self._waiting and self._free is None:
            self._free = now, len(self._waiting)
        while self._waiting:
            planned = self._plan(now)
            batch = self._remove(now, planned)
            if batch:
                return batch
            if planned.wake_at is not None:
                self._wake_at(planned.wake_at)
                break
        return []

    def _would_delay_short(self, prepared: list[Row], now: float) -> bool:
        """The same as in gpuworker.engine.waiting_inputs."""
        limits = self._setup.limits
        long = [each.since for _, each in prepared if is_long(each, limits)]
        if not long or has_turn(min(long), CompositionContext(self._limits(), now, 0, self._long_since_short)):
            return False
        return any(not is_long(each, limits) for each in self._waiting)

    def _may_be_full(self) -> bool:
        """A cheap test that avoids most plans of batches that are not full; the plan decides."""
        num_waiting = len(self._waiting)
        if num_waiting == 0 or num_waiting >= self._setup.max_size:
            return num_waiting > 0
        longest = max(each.tokens for each in self._waiting)
        return (num_waiting + 1) * longest > self._limits().max_tokens

    def _plan(self, now: float) -> Plan:
        return plan(self._waiting, self._limits(), now, SchedulerState(long_since_short=self._long_since_short))

    def _limits(self) -> Limits:
        return self._adaptive_limits.limits(sum(each.tokens for each in self._waiting), self._running_tokens)

    def _remove(self, now: float, planned: Plan) -> list[Row]:
        """Removes the inputs of a plan from the waiting ones, fails entries that are late, and returns the batch."""
        self._passes_over = planned.passes_over
        batch = [(self._waiting_entries[i], self._waiting[i]) for i in planned.batch]
        late = {id(self._waiting_entries[i]): self._waiting_entries[i] for i in planned.expired}
        removed = set(planned.batch)
        self._keep([i not in removed for i in range(len(self._waiting))])
        if late:
            self._expire(now, list(late.values()))
        return [row for row in batch if id(row[0]) not in late]

    def _expire(self, now: float, late: list[Entry]) -> None:
        """Fails entries, and removes all of their inputs that wait."""
        keys = {id(each) for each in late}
        self._keep([id(entry) not in keys for entry in self._waiting_entries])
        self._prepared = [row for row in self._prepared if id(row[0]) not in keys]
        for each in late:
            each.num_pending = 0
        self._answer(now, late, ok=False)

    def _keep(self, kept: list[bool]) -> None:
        self._waiting_entries = list(compress(self._waiting_entries, kept))
        self._waiting = list(compress(self._waiting, kept))

    def _wake_at(self, wake_s: float) -> None:
        if wake_s != self._wake_s:
            self._wake_s = wake_s
            self._schedule(wake_s, self._start_batches)

    def _start(self, now: float, batch: list[Row]) -> None:
        self._running += 1
        passes_over, inputs = self._passes_over or self._prepared_passed_over, [each for _, each in batch]
        self._long_since_short = long_since_short(
            self._long_since_short, inputs, self._setup.limits, passes_over=passes_over
        )
        (free_s, num_waiting), self._free = self._free or (now, len(batch) + len(self._waiting)), None
        tokens = sum(each.tokens for _, each in batch)
        waiting_since_s = min(entry.waiting_since_s for entry, _ in batch)
        padded = tokens if self._device.packed else len(batch) * max(each.tokens for _, each in batch)
        seconds = self._device.costs.seconds(padded)
        if self._device.jitter:
            seconds *= max(0.5, self._random.gauss(1.0, self._device.jitter))
        self._running_tokens += tokens
        run = BatchRun(now, now + seconds, len(batch), tokens, padded, waiting_since_s, free_s, num_waiting)
        saturated = bool(self._waiting) or self._adaptive_limits.is_full([each.tokens for _, each in batch])
        self._schedule(now + seconds, lambda at_s: self._end(at_s, batch, run, saturated=saturated))

    def _end(self, now: float, batch: list[Row], run: BatchRun, *, saturated: bool) -> None:
        seconds = run.ended_s - run.began_s
        self.batches.append(run)
        if saturated or self._was_saturated:  # the same as in gpuworker.consumer.result_handler
            self._rate_tokens = RATE_DECAY * self._rate_tokens + run.tokens
            self._rate_s = RATE_DECAY * self._rate_s + seconds + self._device.gap_s
        self._was_saturated = saturated
        completed = self._complete(batch)
        answered = sum(len(entry.inputs) for entry in completed)
        self._adaptive_limits.record_batch(now, seconds, run.size, run.padded, answered)
        self._answer(now, completed, ok=True)
        if self._device.gap_s:
            self._schedule(now + self._device.gap_s, lambda at_s: self._free_runner(at_s, run))
        else:
            self._free_runner(now, run)

    def _complete(self, batch: list[Row]) -> list[Entry]:
        """Returns the entries of which a batch had the last input; those that failed meanwhile are not among them."""
        completed = []
        for entry, _ in batch:
            entry.num_pending -= 1
            if entry.num_pending == 0:
                completed.append(entry)
        return completed

    def _free_runner(self, now: float, run: BatchRun) -> None:
        self._running -= 1
        self._running_tokens -= run.tokens
        self._start_batches(now)
