"""Whether a model that fails may have more work: a circuit breaker over the results of its batches. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

MIN_FAILURES = 5
"""Fewer failed batches than this open no circuit: a quiet worker may get a bad input now and then, and nothing else."""

MAX_PAUSE_S = 10.0
"""Failures that are further apart than this, and than the time to open, do not belong together."""

MAX_BACKOFF_S = 60.0


class CircuitState(Enum):
    """Closed: the model gets work. Open: it gets none until the backoff has passed. Half-open: one entry, to try it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class CircuitOptions(NamedTuple):
    """How long every batch has to fail before the circuit opens, and for how long it then is open first, s.

    With an `open_after_s` of 0 it never opens.
    """

    open_after_s: float
    backoff_s: float


class Circuit:
    """The circuit of one model.

    A batch fails if none of its inputs has an output and the model raised an exception. One with any output closes the
    circuit: the model works, whatever its inputs do. One without either says nothing.

    Args:
        options: when it opens, and for how long.

    Attributes:
        reason: the type of the last exception.
    """

    def __init__(self, options: CircuitOptions) -> None:
        self._options = options
        self._first_failed_at = self._last_failed_at = 0.0
        self._num_failures = 0
        self._backoff_s = options.backoff_s
        self._open_until: float | None = None
        self.reason = ""

    def record_batch(self, num_outputs: int, error: str, now: float, run_s: float = 0.0) -> bool:
        """Learns from a batch; returns whether that has opened the circuit.

        Args:
            num_outputs: inputs of it that have an output.
            error: the type of an exception that the model raised in it; empty if it raised none.
            now: monotonic clock, s.
            run_s: how long it ran: a batch that fails after a long time-out is no pause between failures.
        """
        if num_outputs:
            self.reset()
        elif error:
            return self._record_failure(error, now, run_s)
        return False

    def reset(self) -> None:
        """Closes the circuit and forgets all failures: the model works, or a new engine has loaded it."""
        self._num_failures = 0
        self._open_until, self._backoff_s = None, self._options.backoff_s
        self.reason = ""

    def state(self, now: float) -> CircuitState:
        """Returns the state at a time."""
        if self._open_until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self._open_until else CircuitState.HALF_OPEN

    def open_s(self, now: float) -> float:
        """Returns how long it remains open."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now)

    def _record_failure(self, error: str, now: float, run_s: float) -> bool:
        state = self.state(now)
        if state is CircuitState.OPEN:  # a batch that ran when it opened
            return False
        if state is CircuitState.HALF_OPEN:
            self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s)
            self._open(error, now)
            return True
        if not self._num_failures or now - run_s - self._last_failed_at > max(MAX_PAUSE_S, self._options.open_after_s):
            self._num_failures, self._first_failed_at = 0, now
        self._num_failures, self._last_failed_at = self._num_failures + 1, now
        lasts = now - self._first_failed_at >= self._options.open_after_s > 0
        if lasts and self._num_failures >= MIN_FAILURES:
            self._open(error, now)
            return True
        return False

    def _open(self, error: str, now: float) -> None:
        self.reason, self._open_until = error, now + self._backoff_s

    def max_entries(self, now: float, num_held: int) -> int | None:
        """Returns how many entries may be taken now, by a worker that holds `num_held`; None: the circuit is closed."""
        state = self.state(now)
        if state is CircuitState.CLOSED:
            return None
        return int(state is CircuitState.HALF_OPEN and not num_held)
