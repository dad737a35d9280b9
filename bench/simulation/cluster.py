"""The events of a run: requests on their path to the lane and back, and the workers between."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from bench.simulation.setup import Setup
from bench.simulation.traffic import Traffic, lengths
from bench.simulation.worker import BatchRun, Entry, Request, Worker, WorkerCallbacks, split


@dataclass(frozen=True, slots=True)
class Outcome:
    """All requests in the order of their sending, and all batches in the order of their ends."""

    requests: list[Request]
    batches: list[BatchRun]


def simulate(setup: Setup, traffic: Traffic, seed: int = 1) -> Outcome:
    """Simulates the cluster until all sent requests are answered."""
    return _Cluster(setup, traffic, seed).run()


class _Cluster:
    def __init__(self, setup: Setup, traffic: Traffic, seed: int) -> None:
        self._setup = setup
        self._path = setup.path
        self._traffic = traffic
        self._random = Random(seed)  # noqa: S311 - no secrets
        self._inputs = traffic.inputs or ((tokens,) for tokens in lengths(setup.device.lengths, seed))
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._num_events = 0
        self._path_busy_until_s = 0.0
        self._lane: deque[Entry] = deque()
        self._requests: list[Request] = []
        self._workers = deque(
            Worker(setup, self._random, self._schedule, WorkerCallbacks(self._answer, self._claim))
            for _ in range(setup.workers)
        )

    def run(self) -> Outcome:
        events, until_s = self._events, self._traffic.until_s
        arrivals = self._traffic.arrivals
        next_s = next(arrivals, math.inf)
        while True:
            if next_s >= until_s:
                next_s = math.inf
            if events and events[0][0] <= next_s:
                now, _, callback = heapq.heappop(events)
                callback(now)
            elif next_s < math.inf:
                self._send(next_s)
                next_s = next(arrivals, math.inf)
            else:
                batches = [run for worker in self._workers for run in worker.batches]
                return Outcome(self._requests, sorted(batches, key=lambda run: run.ended_s))

    def _schedule(self, at_s: float, callback: Callable[[float], None]) -> None:
        # The number breaks ties: events of the same time run in the order of their scheduling.
        self._num_events += 1
        heapq.heappush(self._events, (at_s, self._num_events, callback))

    def _serve_on_path(self, now: float, each_s: float) -> float:
        """Returns when the only server on the path finishes this request, after all earlier ones."""
        self._path_busy_until_s = max(self._path_busy_until_s, now) + each_s
        return self._path_busy_until_s

    def _send(self, now: float) -> None:
        submitted_s = self._serve_on_path(now, self._path.in_each_s) + self._path.in_s
        request = Request(now, next(self._inputs), now + self._setup.timeout_s)
        self._requests.append(request)

        def submit(at_s: float) -> None:
            self._lane.extend(split(request, submitted_s))
            self._claim(at_s)

        self._schedule(submitted_s, submit)

    def _claim(self, now: float) -> None:
        """Lets the workers claim in turn, each at most its share of all entries."""
        if len(self._workers) == 1 and self._lane:
            self._workers[0].claim(now, self._lane, len(self._lane))
            return
        for _ in range(len(self._workers)):
            if not self._lane:
                return
            worker = self._workers[0]
            self._workers.rotate(-1)
            entries = len(self._lane) + sum(each.held for each in self._workers)
            share = math.ceil(entries / len(self._workers)) - worker.held
            worker.claim(now, self._lane, max(share, 0 if worker.held else 1))

    def _answer(self, now: float, entries: Sequence[Entry], ok: bool) -> None:
        traffic = self._traffic
        for request in [entry.request for entry in entries]:
            request.num_pending -= 1
            request.ok = request.ok and ok
            if request.num_pending:
                continue
            answered_s = self._serve_on_path(now, self._path.out_each_s) + self._path.out_s
            request.answered_s = answered_s
            if traffic.is_closed:
                next_s = answered_s + (self._random.expovariate(1 / traffic.think_s) if traffic.think_s else 0.0)
                if next_s < traffic.until_s:
                    self._schedule(next_s, self._send)
