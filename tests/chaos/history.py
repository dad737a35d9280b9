"""The history of client calls, and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

OK, FOREIGN, RESET = "ok", "foreign", "reset"
"""Outcomes: the right vector, the vector of another text, a connection that broke before the answer. All other outcomes
are a status and an error code."""

LATE_S = 0.5
"""An answer is late if it comes more than this past its deadline: the test process itself may be slow by that much."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its text, its timeout, the times when it was sent and answered (s, monotonic), and its outcome."""

    text: str
    timeout_s: float
    began: float
    ended: float
    outcome: str

    @property
    def seconds(self) -> float:
        """Latency in s."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Verdict:
    """Numbers of calls by outcome. `slowest_s` is the longest latency of an answered call."""

    calls: int
    answered: int
    misrouted: int
    late: int
    slowest_s: float
    others: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Number of calls without their vector."""
        return self.calls - self.answered


def max_in_flight(calls: Sequence[Call]) -> int:
    """Returns the largest number of calls that were open at a time."""
    changes = sorted([(call.began, 1) for call in calls] + [(call.ended, -1) for call in calls])
    return max(accumulate(change for _, change in changes))


def judge(calls: Iterable[Call]) -> Verdict:
    """Returns the verdict on all calls."""
    outcomes: Counter[str] = Counter()
    late, slowest_s = 0, 0.0
    for call in calls:
        outcomes[call.outcome] += 1
        late += call.seconds > call.timeout_s + LATE_S
        if call.outcome == OK:
            slowest_s = max(slowest_s, call.seconds)
    others = Counter({name: n for name, n in outcomes.items() if name != OK})
    return Verdict(outcomes.total(), outcomes[OK], outcomes[FOREIGN], late, slowest_s, others)
