"""The pods of a Deployment: they take their time to be ready, and to leave."""

from __future__ import annotations

import math
from collections import deque


class Fleet:
    """Pods.

    Args:
        ready: how many there are at the beginning.
        start_s: from the order of a pod to when it serves.
        stop_s: from the order to leave, when it takes nothing new any more, to when it is gone.
    """

    def __init__(self, ready: int, start_s: float, stop_s: float) -> None:
        self._start_s, self._stop_s = start_s, stop_s
        self._ready_s = [-math.inf] * ready
        self._starting: deque[float] = deque()
        self._leaving: deque[float] = deque()

    @property
    def ready(self) -> int:
        """Those that serve."""
        return len(self._ready_s)

    @property
    def replicas(self) -> int:
        """Those that are to be there: ready, and starting."""
        return self.ready + len(self._starting)

    @property
    def paid(self) -> int:
        """All that somebody pays for: those that leave, too."""
        return self.replicas + len(self._leaving)

    @property
    def starting(self) -> int:
        """Those that are not ready yet."""
        return len(self._starting)

    def ready_since(self, moment: float) -> int:
        """Returns how many of those that serve do so only since then, or later."""
        return sum(each > moment for each in self._ready_s)

    def advance(self, now: float) -> None:
        """Lets the time come to now."""
        while self._starting and self._starting[0] <= now:
            self._ready_s.append(self._starting.popleft())
        while self._leaving and self._leaving[0] <= now:
            self._leaving.popleft()

    def scale(self, now: float, replicas: int) -> None:
        """Orders pods, or has some leave: first those that are not ready, then the newest, as a ReplicaSet does."""
        while self.replicas < replicas:
            self._starting.append(now + self._start_s)
        while self.replicas > replicas:
            if self._starting:
                self._starting.pop()
            else:
                self._ready_s.pop()
                self._leaving.append(now + self._stop_s)
