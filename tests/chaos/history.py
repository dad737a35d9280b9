"""What clients did and saw, call by call, and the judgement over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

OK, FOREIGN, RESET = "ok", "foreign", "reset"
"""The right vector; another's; and a connection that broke before the answer. All else is a status and a code."""

LATE_S = 0.5
"""An answer this much past its deadline is late: the test's own process may be as slow as that."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its text, its time allowed, when it was sent and answered (s, monotonic), and how it ended."""

    text: str
    timeout_s: float
    began: float
    ended: float
    outcome: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Verdict:
    """Calls by how they ended. `slowest_s` is of those that were answered."""

    calls: int
    answered: int
    misrouted: int
    late: int
    slowest_s: float
    others: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Calls without their vector."""
        return self.calls - self.answered


def judge(calls: Iterable[Call]) -> Verdict:
    """Looks at every call."""
    outcomes: Counter[str] = Counter()
    late, slowest_s = 0, 0.0
    for call in calls:
        outcomes[call.outcome] += 1
        late += call.seconds > call.timeout_s + LATE_S
        if call.outcome == OK:
            slowest_s = max(slowest_s, call.seconds)
    others = Counter({name: n for name, n in outcomes.items() if name != OK})
    return Verdict(outcomes.total(), outcomes[OK], outcomes[FOREIGN], late, slowest_s, others)
