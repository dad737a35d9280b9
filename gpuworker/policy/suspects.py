"""When inputs run that an engine may have died of, and which of them. Pure.

A *suspect* is an input whose run began before and did not end: the engine died in it, and the input may be the cause.
It runs only with the other inputs of its entry, which is accused as a whole: so no other entry is accused in its place.
Suspects go after all inputs that waited when they came back: those that ran once when an engine died, then those that
ran twice. After that, or once they have let others go first for long enough, others and suspects take turns of about
the same time: a batch of others, then suspects, one entry at a time, for as long as that batch took. One entry a turn
would be too little: after the death of a worker, 30 entries may be suspects with seconds left, while batches are full.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gpuworker.policy.composition import WaitingInput

SUSPECT_BOUND_S = 1.0
"""Longest time that a suspect lets others go first, however many were there before it: they may be more than the engine
can serve."""


class SuspectTurns:
    """The turns of suspects, which begin once they are due."""

    def __init__(self) -> None:
        self._batch_s = self._turn_s = 0.0  # of the last batch of others, and of the suspects that ran since

    @property
    def is_over(self) -> bool:
        """Whether suspects have had their turn: it is that of others."""
        return 0 < self._turn_s >= self._batch_s

    def start_batch(self) -> None:
        """A batch of others begins."""
        self._turn_s = 0.0

    def end_run(self, run_s: float, *, suspect: bool) -> None:
        """A batch of others, or a suspect, has run for a time."""
        if suspect:
            self._turn_s += run_s
        else:
            self._batch_s = run_s


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
