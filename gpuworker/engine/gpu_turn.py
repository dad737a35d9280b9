"""Whose turn it is on a device: always this engine's, or for one batch at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import Tenure


class Turn(Protocol):
    """What the pipeline asks before each batch."""

    @property
    def held(self) -> bool:
        """Whether a batch may run."""

    def take(self) -> None:
        """Waits until it is this engine's turn, unless it is."""

    def give(self) -> None:
        """Ends the turn, if it is this engine's."""


class OwnTurn:
    """The device is this engine's own."""

    held = True

    def take(self) -> None:
        """It is."""

    def give(self) -> None:
        """It stays so."""


OWN = OwnTurn()


class SharedTurn:
    """What the pipeline asks before each batch, where workers take turns on a GPU.

    One thread takes and gives turns: the runner, of which there is one.

    Args:
        tenure: told when a turn begins and ends.
        lock: of the host.
        tell: tells the worker: want, has, done.
    """

    def __init__(self, tenure: Tenure, lock: HostLock, tell: Callable[[str], None]) -> None:
        self._tenure, self._lock, self._tell = tenure, lock, tell
        self._state = threading.Condition()
        self._name = ""
        self._has = False
        self.held = False

    def take(self) -> None:
        """Waits until it is this engine's turn, unless it is."""
        with self._state:
            if self._has:
                return
            self._tell("want")
            self._state.wait_for(lambda: self._has)
        self._lock.take(self._name)
        self._tell("has")
        self.held = True

    def give(self) -> None:
        """Ends the turn, if it is this engine's."""
        with self._state:
            if not self._has:
                return
            self._has = self.held = False
        self._lock.give()
        self._tenure.end()
        self._tell("done")

    def grant(self, lock: str) -> None:
        """The worker says that it is this engine's turn, and what to lock for it."""
        with self._state:
            self._has, self._name = True, lock
            self._tenure.begin()
            self._state.notify()
