"""The recent load of interactive inputs, and the rate that it leaves for bulk. Pure."""

from __future__ import annotations

import math

RECENT_S = 3.0
"""Time constant of the average load of interactive inputs."""

MIN_SHARE = 0.01
"""Minimum share in the rate of bulk: without a share it still runs after it was passed over for long."""


class LoadAverage:
    """The recent load of interactive inputs, in tokens per second, and the rate that it leaves for bulk."""

    def __init__(self) -> None:
        self._tokens = 0
        self._rate = 0.0
        self._last_at: float | None = None

    def record(self, tokens: int) -> None:
        """Counts tokens of interactive inputs that have been run."""
        self._tokens += tokens

    def advance(self, now: float) -> None:
        """Updates the average at `now`, s; the tokens recorded since the last call were run in the time since then."""
        elapsed = 0.0 if self._last_at is None else now - self._last_at
        self._last_at, tokens, self._tokens = now, self._tokens, 0
        if elapsed > 0:
            self._rate += (1 - math.exp(-elapsed / RECENT_S)) * (tokens / elapsed - self._rate)

    def bulk_rate(self, rate: float, share: float) -> float:
        """Returns how many tokens per second are left for bulk, at least its share; 0 while the rate is unknown.

        Args:
            rate: of the engine, in tokens per second; 0 while unknown.
            share: bulk's share of the tokens.
        """
        return max(rate - self._rate, max(share, MIN_SHARE) * rate)
