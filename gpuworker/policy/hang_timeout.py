"""How long an engine may work on something and say nothing, before it is taken for hung. Pure."""

from __future__ import annotations

FACTOR = 10
"""So many times longer than any batch of its own has taken, or a full one is expected to take."""

FIRST_S = 120.0
"""Before its first batch nothing is known of a model, and the first one may compile kernels."""

STRETCH = 16
"""What is expected of a full batch counts up to so many times the slowest that ran: small ones say too little of it."""

FORGET = 0.01
"""Share of the slowest batch that is forgotten with each that is faster."""


class Patience:
    """What is learnt of an engine's batches.

    Args:
        least_s: the bound is never shorter.
        wait_s: how long a batch may wait to be filled before it begins.
    """

    def __init__(self, least_s: float, wait_s: float) -> None:
        self._least_s = least_s
        self._wait_s = wait_s
        self._slowest_s: float | None = None
        self._full_s = 0.0

    def restarted(self) -> None:
        """Forgets: a new engine has its own first batch."""
        self._slowest_s, self._full_s = None, 0.0

    def ran(self, seconds: float, full_s: float) -> None:
        """Takes in how long a batch took, and how long the engine expects a full one to take."""
        known_s = 0.0 if self._slowest_s is None else (1 - FORGET) * self._slowest_s
        self._slowest_s = max(seconds, known_s)
        self._full_s = min(full_s, STRETCH * self._slowest_s)

    @property
    def bound_s(self) -> float:
        """The longest that an entry may run, or that an engine with something to do may be silent."""
        if self._slowest_s is None:
            return self._wait_s + max(self._least_s, FIRST_S)
        return self._wait_s + max(self._least_s, FACTOR * max(self._slowest_s, self._full_s))
