"""The events of a run: requests on their way to the lane and back, and the workers between."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bench.simulation.setup import Setup
from bench.simulation.traffic import Traffic, lengths
from bench.simulation.worker import Ran, Request, Worker
from gpuworker.policy.batching import Waiting


@dataclass(frozen=True, slots=True)
class Outcome:
    """All requests in the order in which they were sent, and all batches in the order in which they ended."""

    requests: list[Request]
    batches: list[Ran]


def simulate(setup: Setup, traffic: Traffic, seed: int = 1) -> Outcome:
    """Runs until everything that was sent is answered."""
    return _Cluster(setup, traffic, seed).run()


class _Cluster:
    def __init__(self, setup: Setup, traffic: Traffic, seed: int) -> None:
        self._setup = setup
        self._path = setup.path
        self._traffic = traffic
        self._random = Random(seed)  # noqa: S311 - no secrets
        self._lengths: Iterator[int] = lengths(setup.device.lengths, seed)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        self._line_s = 0.0
        self._lane: deque[Request] = deque()
        self._requests: list[Request] = []
        self._workers = deque(
            Worker(setup, self._random, self._at, self._answered, self._claim) for _ in range(setup.workers)
        )

    def run(self) -> Outcome:
        events, until_s = self._events, self._traffic.until_s
        arrivals = self._traffic.arrivals
        next_s = next(arrivals, math.inf)
        while True:
            if next_s >= until_s:
                next_s = math.inf
            if events and events[0][0] <= next_s:
                now, _, happens = heapq.heappop(events)
                happens(now)
            elif next_s < math.inf:
                self._send(next_s)
                next_s = next(arrivals, math.inf)
            else:
                batches = [ran for worker in self._workers for ran in worker.batches]
                return Outcome(self._requests, sorted(batches, key=lambda ran: ran.ended_s))

    def _at(self, when: float, happens: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, happens))

    def _through(self, now: float, each_s: float) -> float:
        """Returns when the one server on the path is done with this request, behind all that came to it before."""
        self._line_s = max(self._line_s, now) + each_s
        return self._line_s

    def _send(self, now: float) -> None:
        submitted_s = self._through(now, self._path.in_each_s) + self._path.in_s
        tokens = next(self._lengths)
        request = Request(now, tokens, Waiting(tokens, submitted_s, now + self._setup.timeout_s))
        self._requests.append(request)

        def submitted(at: float) -> None:
            self._lane.append(request)
            self._claim(at)

        self._at(submitted_s, submitted)

    def _claim(self, now: float) -> None:
        """Has the workers claim, in turn, each at most its share of all entries."""
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

    def _answered(self, now: float, requests: Sequence[Request], ok: bool) -> None:
        traffic = self._traffic
        for request in requests:
            answered_s = self._through(now, self._path.out_each_s) + self._path.out_s
            request.answered_s, request.ok = answered_s, ok
            if traffic.again:
                again_s = answered_s + (self._random.expovariate(1 / traffic.think_s) if traffic.think_s else 0.0)
                if again_s < traffic.until_s:
                    self._at(again_s, self._send)
