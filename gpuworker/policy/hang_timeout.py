"""How long an engine may work without a sign of progress before it is considered hung. Pure."""

from __future__ import annotations

FACTOR = 10
"""The timeout is this many times the time of its slowest batch, or of a full batch as expected."""

FIRST_S = 120.0
"""Before a worker's first batch the speed of its model is unknown, and the first batch may compile kernels."""

MAX_EXTRAPOLATION = 16
"""The expected time of a full batch counts up to this many times the slowest batch: small ones predict it badly."""

FORGET = 0.01
"""Fraction of the slowest time that each faster batch takes off."""


class HangTimeout:
    """A timeout learned from the batches of a worker's engines.

    Args:
        min_s: the shortest timeout.
        wait_s: how long a batch may wait to be filled before it begins.
    """

    def __init__(self, min_s: float, wait_s: float) -> None:
        self._min_s = min_s
        self._wait_s = wait_s
        self._slowest_s: float | None = None
        self._full_s = 0.0
        self._first_s = 0.0
        self._is_new = True

    def reset(self) -> None:
        """Prepares for a new engine: its first batch may be as slow as the first ones of the engines before it."""
        self._is_new = True
        if self._slowest_s is not None:
            self._slowest_s = max(self._slowest_s, self._first_s)

    def record_batch(self, seconds: float, full_s: float) -> None:
        """Learns from a batch: how long it took, and how long the engine expects a full one to take."""
        if self._is_new:
            self._is_new, self._first_s = False, max(seconds, self._first_s)
        known_s = 0.0 if self._slowest_s is None else (1 - FORGET) * self._slowest_s
        self._slowest_s = max(seconds, known_s)
        self._full_s = min(full_s, MAX_EXTRAPOLATION * self._slowest_s)

    @property
    def timeout_s(self) -> float:
        """The longest time that an entry may run, or that an engine with work to do may be silent."""
        if self._slowest_s is None:
            return self._wait_s + max(self._min_s, FIRST_S)
        return self._wait_s + max(self._min_s, FACTOR * max(self._slowest_s, self._full_s))
