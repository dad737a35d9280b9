"""When inputs run that an engine may have died of, and which of them. Pure.

A *suspect* is an input whose run began before and did not end: the engine died in it, and the input may be the cause.
It runs only with the other inputs of its entry, which is accused as a whole: so no other entry is accused in its place.
Suspects go after all inputs that waited when they came back: those that ran once when an engine died, then those that
ran twice. After that, or once they have let others go first for long enough, batches of others and of suspects
alternate.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gpuworker.policy.composition import WaitingInput

SUSPECT_BOUND_S = 1.0
"""Longest time that a suspect lets others go first, however many were there before it: they may be more than the engine
can serve."""


def suspects_due_at(waiting: Sequence[WaitingInput], shared: list[int], suspects: list[int]) -> float:
    """Returns when suspects begin to alternate with others: once all inputs before them have gone, or after a bound.

    Without the bound, if workers die one after another, each would serve only new inputs, and never a suspect.
    """
    first = min((waiting[i].since for i in suspects), default=inf)
    return first if all(waiting[i].since > first for i in shared) else first + SUSPECT_BOUND_S


def next_suspects(waiting: Sequence[WaitingInput], suspects: list[int]) -> tuple[int, ...]:
    """Returns the suspects of one entry: of the oldest among those with the fewest attempts."""
    next_one = waiting[min(suspects, key=lambda i: (waiting[i].attempts, waiting[i].since))]
    return tuple(i for i in suspects if waiting[i].entry == next_one.entry)
