"""A queue and the workers that empty it, in steps of half a second: who waits how long, who is refused.

Workers run what is there: one that has time takes small batches, and one that has none full ones. A request that comes
while a batch runs waits for its end and for that of its own: twice a batch's time, which is taken as what everybody
needs besides the time in the queue. A fleet that keeps up has no queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from api.admission import most_tokens
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings

STEP_S = 0.5
SAMPLE_S = 60.0

Load = Callable[[float], float]
"""Requests a second, `now` seconds after the beginning."""

Scale = Callable[[float, int, int], int]
"""Returns the workers that there are to be: at a time, with so many of them, and so many entries in the lanes."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker with a batch's time: `base_s`, and `each_s` for each input. `start_s` is from its order to readiness."""

    base_s: float
    each_s: float
    start_s: float
    most: int = WorkerSettings().max_batch_size

    def batch_s(self, size: float) -> float:
        """Returns what a batch takes."""
        return self.base_s + self.each_s * size

    @property
    def per_s(self) -> float:
        """Inputs a second in full batches."""
        return self.most / self.batch_s(self.most)

    def batch_at(self, per_s: float) -> float:
        """Returns the size of batches at so many inputs a second: what comes while one runs is the next."""
        left = 1 - per_s * self.each_s
        return self.most if left <= 0 else min(self.most, max(1.0, per_s * self.base_s / left))


@dataclass(frozen=True, slots=True)
class Sample:
    """A minute: when it ended (s), its requests a second, what was in the lanes at most, and the workers at its end."""

    at: float
    per_s: float
    entries: int
    workers: int
    ready: int
    p99_s: float


@dataclass
class Outcome:
    """What became of a day's requests. `worker_hours` counts those that start, too."""

    arrived: int = 0
    refused: int = 0
    expired: int = 0
    waiting: int = 0
    worker_hours: float = 0.0
    most_workers: int = 0
    latencies: list[tuple[float, int]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def served(self) -> int:
        """Those that have their answer."""
        return sum(count for _, count in self.latencies)

    def slower_than(self, bound_s: float) -> float:
        """Returns the share of those served that took longer, and of those that were never."""
        slow = sum(count for latency, count in self.latencies if latency > bound_s)
        return (slow + self.refused + self.expired) / self.arrived

    def percentile(self, share: float) -> float:
        """Returns the latency (s) that such a share of those served had at most."""
        return percentile(self.latencies, share)


def percentile(latencies: Sequence[tuple[float, int]], share: float) -> float:
    """Returns a percentile of latencies with the number of those that had them; 0 of none."""
    if not latencies:
        return 0.0
    ordered = sorted(latencies)
    counts = np.cumsum([count for _, count in ordered])
    return ordered[int(np.searchsorted(counts, share * counts[-1]))][0]


class Fleet:
    """Workers that start and leave, and the queue before them.

    Args:
        worker: what each is.
        scale: who says how many there are.
        workers: how many are ready at the beginning.
        seed: of the arrivals.
    """

    def __init__(self, worker: Worker, scale: Scale, workers: int = 1, seed: int = 0) -> None:
        self._worker = worker
        self._scale = scale
        self._ready = workers
        self._starting: deque[float] = deque()
        self._queue: deque[tuple[float, int]] = deque()
        self._queued = 0
        self._unused = 0.0
        self._dice = np.random.default_rng(seed)
        self._settings = GatewaySettings()
        self.outcome = Outcome()

    def run(self, load: Load, until_s: float) -> Outcome:
        """Runs it for so long."""
        found, begins, minute, most = self.outcome, 0.0, 0, 0
        for step in range(round(until_s / STEP_S)):
            now = step * STEP_S
            most = max(most, self._step(now, load(now)))
            if now + STEP_S >= begins + SAMPLE_S:
                p99_s = percentile(found.latencies[minute:], 0.99)
                found.samples.append(Sample(now, load(now), most, self._workers, self._ready, p99_s))
                begins, minute, most = now + STEP_S, len(found.latencies), 0
        found.waiting = self._queued
        return found

    @property
    def _workers(self) -> int:
        return self._ready + len(self._starting)

    def _step(self, now: float, per_s: float) -> int:
        """Lets half a second pass; returns how many entries were in the lanes."""
        while self._starting and self._starting[0] <= now:
            self._starting.popleft()
            self._ready += 1
        found = self.outcome
        came = int(self._dice.poisson(per_s * STEP_S))
        taken = min(came, max(0, self._bound() - self._queued))
        found.arrived += came
        found.refused += came - taken
        if taken:
            self._queue.append((now, taken))
            self._queued += taken
        load = per_s / self._ready if self._ready else 0.0
        own_s = 2 * self._worker.batch_s(self._worker.batch_at(load))
        self._serve(now, own_s)
        entries = self._queued + int(self._dice.poisson(min(load, self._worker.per_s) * own_s * self._ready))
        self._rescale(now, entries)
        found.worker_hours += self._workers * STEP_S / 3600
        found.most_workers = max(found.most_workers, self._workers)
        return entries

    def _bound(self) -> int:
        """Returns how many may wait: what gateways take by the policy that they have, with one token for each input."""
        budget_s = self._settings.request_timeout_ms / 1000
        return min(self._settings.max_queue_inputs, most_tokens(self._ready * self._worker.per_s, budget_s))

    def _serve(self, now: float, own_s: float) -> None:
        can = self._unused + self._ready * self._worker.per_s * STEP_S
        while self._queue and can >= 1:
            came, count = self._queue.popleft()
            if now - came > self._settings.request_timeout_ms / 1000:
                self.outcome.expired += count
                self._queued -= count
                continue
            done = min(count, int(can))
            self.outcome.latencies.append((now - came + own_s, done))
            can -= done
            self._queued -= done
            if done < count:
                self._queue.appendleft((came, count - done))
        self._unused = can % 1 if self._queue else 0.0

    def _rescale(self, now: float, entries: int) -> None:
        wanted = self._scale(now, self._workers, entries)
        while self._workers < wanted:
            self._starting.append(now + self._worker.start_s)
        while self._workers > wanted:
            if self._starting:
                self._starting.pop()
            else:
                self._ready -= 1
