"""Redis' clock as seen from here. Deadlines are on it, so the clocks of hosts need not agree."""

from __future__ import annotations

import time


class RedisClock:
    """Translates between Redis' clock (ms) and this host's monotonic clock (s), by the latest answer of Redis."""

    def __init__(self) -> None:
        self._ahead_s = time.time() - time.monotonic()  # until Redis has spoken

    def saw(self, redis_ms: int) -> None:
        """Takes in the time that an answer of Redis carried."""
        self._ahead_s = redis_ms / 1000 - time.monotonic()

    def now_ms(self) -> int:
        """Returns Redis' time, as well as it is known."""
        return int((time.monotonic() + self._ahead_s) * 1000)

    def monotonic(self, redis_ms: int) -> float:
        """Returns the monotonic time of a time of Redis."""
        return redis_ms / 1000 - self._ahead_s
