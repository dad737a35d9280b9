"""A simulated worker: its claims, and its engine. Its policies are the product's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from bench.simulation.setup import Setup
from gpuworker.policy.adaptive_limits import AdaptiveLimits
from gpuworker.policy.batching import Plan, plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.credits import HeldLoad, compute_credit
from gpuworker.policy.limits import Limits

RATE_DECAY = 0.9
"""The same value as in gpuworker.consumer.result_handler."""

Schedule = Callable[[float, Callable[[float], None]], None]
"""Schedules a callback at a time (s); it receives that time."""


@dataclass(slots=True)
class Request:
    """A request of one input, and its outcome: when it was answered, and whether with a result (`ok`)."""

    sent_s: float
    tokens: int
    waiting: WaitingInput
    waiting_since_s: float = 0.0
    answered_s: float | None = None
    ok: bool = False


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A batch that has run: its times, its size, its tokens without and with padding.

    `waiting_since_s` is the time from which its oldest input waited in the worker.
    """

    began_s: float
    ended_s: float
    size: int
    tokens: int
    padded: int
    waiting_since_s: float


class WorkerCallbacks(NamedTuple):
    """Callbacks of a worker.

    Attributes:
        answer: receives the time (s), the answered requests, and whether they have results.
        claim: called with the time (s) when answers have freed capacity for further claims.
    """

    answer: Callable[[float, Sequence[Request], bool], None]
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
        self.held = self._held_tokens = 0
        self._setup = setup
        self._device = setup.device
        self._random = random
        self._schedule = schedule
        self._callbacks = callbacks
        self._adaptive_limits = AdaptiveLimits(setup.limits, setup.device.runners)
        self._rate_tokens = self._rate_s = 0.0
        self._waiting_requests: list[Request] = []
        self._waiting: list[WaitingInput] = []
        self._prepared: list[Request] = []
        self._running = self._running_tokens = 0
        self._wake_s = 0.0

    # -- claiming ------------------------------------------------------------------------------------------------------

    def claim(self, now: float, lane: deque[Request], share: int) -> None:
        """Claims requests from the lane, up to the worker's compute_credit and `share`."""
        tokens_per_s = self._rate_tokens / self._rate_s if self._rate_s else 0.0
        held = HeldLoad(self.held, self._held_tokens, self.held)
        allowed = compute_credit(held, self._setup.max_claimed, tokens_per_s, 2 * self._device.max_tokens)
        if allowed is None:
            return
        entries, tokens = min(allowed.entries, share), allowed.tokens
        claimed: list[Request] = []
        while lane and len(claimed) < entries and tokens > 0:
            claimed.append(lane.popleft())
            tokens -= claimed[-1].tokens
        if claimed:
            self._accept(now, claimed)
            self._start_batches(now)

    def _accept(self, now: float, claimed: list[Request]) -> None:
        self.held += len(claimed)
        self._held_tokens += sum(each.tokens for each in claimed)
        expired = [each for each in claimed if each.waiting.deadline <= now]
        if expired:
            self._answer(now, expired, ok=False)
            claimed = [each for each in claimed if each.waiting.deadline > now]
        for each in claimed:
            each.waiting_since_s = now
        self._waiting_requests += claimed
        self._waiting += [each.waiting for each in claimed]
        self._adaptive_limits.record_arrivals(now, len(claimed))

    def _answer(self, now: float, requests: Sequence[Request], *, ok: bool) -> None:
        self.held -= len(requests)
        self._held_tokens -= sum(request.tokens for request in requests)
        self._callbacks.answer(now, requests, ok)
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

    def _next_batch(self, now: float) -> list[Request]:
        if self._prepared:
            live = [each for each in self._prepared if each.waiting.deadline > now]
            expired = [each for each in self._prepared if each.waiting.deadline <= now]
            self._prepared = []
            if expired:
                self._answer(now, expired, ok=False)
            if live:
                return live
        while self._waiting_requests:
            planned = self._plan(now)
            batch = self._remove(now, planned)
            if batch:
                return batch
            if planned.wake_at is not None:
                self._wake_at(planned.wake_at)
                break
        return []

    def _may_be_full(self) -> bool:
        """A cheap test that avoids most plans of batches that are not full; the plan decides."""
        num_waiting = len(self._waiting_requests)
        if num_waiting == 0 or num_waiting >= self._setup.max_size:
            return num_waiting > 0
        longest = max(each.tokens for each in self._waiting)
        return (num_waiting + 1) * longest > self._limits().max_tokens

    def _plan(self, now: float) -> Plan:
        return plan(self._waiting, self._limits(), now)

    def _limits(self) -> Limits:
        return self._adaptive_limits.limits(sum(each.tokens for each in self._waiting), self._running_tokens)

    def _remove(self, now: float, planned: Plan) -> list[Request]:
        """Removes the requests of a plan from the waiting ones, answers the expired ones, and returns the batch."""
        batch = [self._waiting_requests[i] for i in planned.batch]
        expired = [self._waiting_requests[i] for i in planned.expired]
        removed = {*planned.batch, *planned.expired}
        if len(removed) == len(self._waiting_requests):
            self._waiting_requests, self._waiting = [], []
        elif removed:
            self._waiting_requests = [each for i, each in enumerate(self._waiting_requests) if i not in removed]
            self._waiting = [each for i, each in enumerate(self._waiting) if i not in removed]
        if expired:
            self._answer(now, expired, ok=False)
        return batch

    def _wake_at(self, wake_s: float) -> None:
        if wake_s != self._wake_s:
            self._wake_s = wake_s
            self._schedule(wake_s, self._start_batches)

    def _start(self, now: float, batch: list[Request]) -> None:
        self._running += 1
        tokens, waiting_since_s = sum(each.tokens for each in batch), min(each.waiting_since_s for each in batch)
        padded = tokens if self._device.packed else len(batch) * max(each.tokens for each in batch)
        seconds = self._device.costs.seconds(padded)
        if self._device.jitter:
            seconds *= max(0.5, self._random.gauss(1.0, self._device.jitter))
        self._running_tokens += tokens
        run = BatchRun(now, now + seconds, len(batch), tokens, padded, waiting_since_s)
        self._schedule(now + seconds, lambda at_s: self._end(at_s, batch, run))

    def _end(self, now: float, batch: list[Request], run: BatchRun) -> None:
        seconds = run.ended_s - run.began_s
        self.batches.append(run)
        self._rate_tokens = RATE_DECAY * self._rate_tokens + run.tokens
        self._rate_s = RATE_DECAY * self._rate_s + seconds + self._device.gap_s
        self._adaptive_limits.record_batch(now, seconds, run.size, run.padded, run.size)
        self._answer(now, batch, ok=True)
        if self._device.gap_s:
            self._schedule(now + self._device.gap_s, lambda at_s: self._free_runner(at_s, run))
        else:
            self._free_runner(now, run)

    def _free_runner(self, now: float, run: BatchRun) -> None:
        self._running -= 1
        self._running_tokens -= run.tokens
        self._start_batches(now)
