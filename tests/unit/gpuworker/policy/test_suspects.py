"""When inputs run that an engine may have died of; how a plan uses it is tested in test_batching."""

from __future__ import annotations

from math import inf

from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.suspects import SUSPECT_BOUND_S, next_suspects, suspects_due_at

DEADLINE = 1e9
WAITING = [
    WaitingInput(5, 1.0, DEADLINE),
    WaitingInput(5, 2.0, DEADLINE, attempts=2, entry="a"),
    WaitingInput(5, 3.0, DEADLINE, attempts=1, entry="b"),
    WaitingInput(5, 4.0, DEADLINE),
    WaitingInput(5, 3.0, DEADLINE, attempts=1, entry="b"),
    WaitingInput(5, 5.0, DEADLINE, attempts=1, entry="c"),
]
SUSPECTS = [1, 2, 4, 5]


def test_suspects_let_those_before_them_go_first_for_a_bounded_time() -> None:
    """Once these have gone, they are due at once."""
    assert suspects_due_at(WAITING, [0, 3], SUSPECTS) == 2.0 + SUSPECT_BOUND_S
    assert suspects_due_at(WAITING, [3], SUSPECTS) == 2.0
    assert suspects_due_at(WAITING, [0, 3], []) == inf


def test_the_suspects_of_one_entry_run_together() -> None:
    """Those with fewer attempts first, and of these the oldest."""
    assert next_suspects(WAITING, SUSPECTS) == (2, 4)
    assert next_suspects(WAITING, [1, 5]) == (5,)
    assert next_suspects(WAITING, [1]) == (1,)
