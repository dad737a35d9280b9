"""The clock of Redis as seen from this host. Deadlines are on it, so the clocks of hosts need not agree."""

from __future__ import annotations

import time


class RedisClock:
    """Translates between Redis' clock (ms) and this host's monotonic clock (s), by the latest answer of Redis."""

    def __init__(self) -> None:
        self._ahead_s = time.time() - time.monotonic()  # until the first answer of Redis

    def observe(self, redis_ms: int) -> None:
        """Adjusts to the time that an answer of Redis contains."""
        self._ahead_s = redis_ms / 1000 - time.monotonic()

    def now_ms(self) -> int:
        """Returns the time of Redis, as well as it is known."""
        return int((time.monotonic() + self._ahead_s) * 1000)

    def to_monotonic(self, redis_ms: int) -> float:
        """Returns the monotonic time of a time of Redis."""
        return redis_ms / 1000 - self._ahead_s
