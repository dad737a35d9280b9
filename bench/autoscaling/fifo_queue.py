"""A first-come, first-served queue of many requests. Requests that arrive together are stored as one cohort."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Cohort(NamedTuple):
    """A number of requests (`size`) that arrive evenly over a span of time."""

    begin_s: float
    span_s: float
    size: int

    @property
    def mean_arrival_s(self) -> float:
        """Mean of their arrival times."""
        return self.begin_s + self.span_s / 2

    def split(self, size: int) -> tuple[Cohort, Cohort]:
        """Returns the first `size` requests, and the rest."""
        span_s = self.span_s * size / self.size
        rest = Cohort(self.begin_s + span_s, self.span_s - span_s, self.size - size)
        return Cohort(self.begin_s, span_s, size), rest


class Departure(NamedTuple):
    """A cohort that was served, and its mean time in the queue."""

    cohort: Cohort
    waited_s: float


class FifoQueue:
    """A queue in front of a server that takes requests at an even rate. `length` is the number of requests in it."""

    def __init__(self) -> None:
        self._cohorts: deque[Cohort] = deque()
        self._unused = 0.0
        self.length = 0

    def append(self, cohort: Cohort) -> None:
        """Adds a cohort at the end of the queue; an empty one is ignored."""
        if cohort.size:
            self._cohorts.append(cohort)
            self.length += cohort.size

    def serve(self, now: float, span_s: float, per_s: float) -> list[Departure]:
        """Serves requests at `per_s` over the span that begins now. A fraction of a request carries over."""
        capacity = per_s * span_s + self._unused
        departures: list[Departure] = []
        num_served = 0
        while self._cohorts and num_served + 1 <= capacity:
            cohort = self._cohorts.popleft()
            size = min(cohort.size, int(capacity - num_served))
            if size < cohort.size:
                cohort, rest = cohort.split(size)
                self._cohorts.appendleft(rest)
            mean_service_s = now + (num_served + size / 2) / per_s
            departures.append(Departure(cohort, max(0.0, mean_service_s - cohort.mean_arrival_s)))
            num_served += size
        self.length -= num_served
        self._unused = capacity - num_served if self._cohorts else 0.0
        return departures

    def expire(self, before_s: float) -> int:
        """Removes cohorts whose mean arrival time is before `before_s`; returns their number of requests."""
        num_expired = 0
        while self._cohorts and self._cohorts[0].mean_arrival_s < before_s:
            num_expired += self._cohorts.popleft().size
        self.length -= num_expired
        return num_expired
