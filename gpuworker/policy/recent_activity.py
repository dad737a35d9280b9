"""What a worker did in the last seconds, for its heartbeat. Pure."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from shared.activity import Activity, bucket_of

WINDOW_S = 30
"""Long enough to be seen by a person who looks a little later, short enough to follow a change of the load."""


@dataclass(slots=True)
class _Second:
    number: int
    requests: int = 0
    errors: int = 0
    batches: int = 0
    inputs: int = 0
    latencies: Counter[int] = field(default_factory=Counter)


class RecentActivity:
    """Counts answers and batches of the last WINDOW_S seconds, second by second.

    All times are seconds on one clock; `started_at` is when counting began.
    """

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._seconds: deque[_Second] = deque(maxlen=WINDOW_S)

    def record_answer(self, now: float, latency_ms: float, *, num_requests: int) -> None:
        """Counts an entry, answered `latency_ms` after its submission, and the requests of which it is the first."""
        second = self._second(now)
        second.requests += num_requests
        second.latencies[bucket_of(latency_ms)] += max(1, num_requests)

    def record_error(self, now: float) -> None:
        """Counts an entry that is answered with an error which is not the client's fault."""
        self._second(now).errors += 1

    def record_batch(self, now: float, size: int) -> None:
        """Counts a batch of `size` inputs."""
        second = self._second(now)
        second.batches += 1
        second.inputs += size

    def summarize(self, now: float) -> Activity:
        """Returns the counts of the last WINDOW_S, or since counting began."""
        first = int(now) - WINDOW_S + 1
        seconds = [each for each in self._seconds if each.number >= first]
        latencies: Counter[int] = sum((each.latencies for each in seconds), Counter())
        return Activity(
            window_s=round(min(now - first, now - self._started_at), 3),
            requests=sum(each.requests for each in seconds),
            errors=sum(each.errors for each in seconds),
            batches=sum(each.batches for each in seconds),
            inputs=sum(each.inputs for each in seconds),
            latencies=tuple(sorted(latencies.items())),
        )

    def _second(self, now: float) -> _Second:
        number = int(now)
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
        return self._seconds[-1]
