"""The pods of a Deployment. Starting and stopping take time."""

from __future__ import annotations

import math
from collections import deque


class Deployment:
    """The pods of one role.

    Args:
        ready: number of ready pods at the beginning.
        start_s: time from the order of a pod to when it serves.
        stop_s: time from the order to stop, from when on a pod takes no new work, to its end.
    """

    def __init__(self, ready: int, start_s: float, stop_s: float) -> None:
        self._start_s, self._stop_s = start_s, stop_s
        self._ready_s = [-math.inf] * ready
        self._starting: deque[float] = deque()
        self._stopping: deque[float] = deque()

    @property
    def ready(self) -> int:
        """Number of pods that serve."""
        return len(self._ready_s)

    @property
    def replicas(self) -> int:
        """Number of ordered pods: ready and starting."""
        return self.ready + len(self._starting)

    @property
    def billed(self) -> int:
        """Number of pods that cost money: ready, starting and stopping."""
        return self.replicas + len(self._stopping)

    @property
    def starting(self) -> int:
        """Number of pods that are not ready yet."""
        return len(self._starting)

    def ready_since(self, moment: float) -> int:
        """Returns the number of serving pods that became ready after `moment`."""
        return sum(each > moment for each in self._ready_s)

    def advance(self, now: float) -> None:
        """Advances the time to `now`: due pods become ready, or end."""
        while self._starting and self._starting[0] <= now:
            self._ready_s.append(self._starting.popleft())
        while self._stopping and self._stopping[0] <= now:
            self._stopping.popleft()

    def scale(self, now: float, replicas: int) -> None:
        """Orders or stops pods. It stops those that are not ready first, then the newest, as a ReplicaSet does."""
        while self.replicas < replicas:
            self._starting.append(now + self._start_s)
        while self.replicas > replicas:
            if self._starting:
                self._starting.pop()
            else:
                self._ready_s.pop()
                self._stopping.append(now + self._stop_s)
