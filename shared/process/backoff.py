"""The pause between attempts: doubles after each one, up to a maximum."""

from __future__ import annotations

import asyncio


class Backoff:
    """Exponential backoff of one caller, without jitter: each caller here retries over a connection that it owns.

    Args:
        first_s: the first pause, s.
        max_s: the longest pause, s.
    """

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self.next_s = first_s

    def reset(self) -> None:
        """Starts again from the first pause: an attempt has succeeded."""
        self.next_s = self._first_s

    async def wait(self) -> None:
        """Sleeps for the next pause, then doubles it."""
        await asyncio.sleep(self.next_s)
        self.next_s = min(2 * self.next_s, self._max_s)
