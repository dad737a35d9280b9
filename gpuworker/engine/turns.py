"""Whose turn it is on a device: always this engine's, or for one batch at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from gpuworker.engine.host_lock import HostLock


class Turn(Protocol):
    """What the pipeline asks before each batch."""

    def take(self) -> None:
        """Waits until it is this engine's turn, unless it is."""

    def give(self) -> None:
        """Ends the turn, if it is this engine's."""


class OwnTurn:
    """The device is this engine's own."""

    def take(self) -> None:
        """It is."""

    def give(self) -> None:
        """It stays so."""


OWN = OwnTurn()


class SharedTurn:
    """What the pipeline asks before each batch, where workers take turns on a GPU.

    Args:
        until: told until when a turn lasts; None when it is over.
        lock: of the host.
        want: asks the worker for a turn.
        done: tells it that the turn is over.
    """

    def __init__(
        self, until: Callable[[float | None], None], lock: HostLock, want: Callable[[], None], done: Callable[[], None]
    ) -> None:
        self._until, self._lock = until, lock
        self._want, self._done = want, done
        self._state = threading.Condition()
        self._name = ""
        self._has = False

    def take(self) -> None:
        """Waits until it is this engine's turn, unless it is."""
        with self._state:
            if self._has:
                return
            self._want()
            self._state.wait_for(lambda: self._has)
        self._lock.take(self._name)

    def give(self) -> None:
        """Ends the turn, if it is this engine's."""
        with self._state:
            if not self._has:
                return
            self._has = False
            self._until(None)
        self._lock.give()
        self._done()

    def grant(self, until: float, lock: str) -> None:
        """The worker says that it is this engine's turn until then, and what to lock for it."""
        with self._state:
            self._has, self._name = True, lock
            self._until(until)
            self._state.notify()

    def extend(self, until: float) -> None:
        """The worker says that the turn may last until then. It may just be over."""
        with self._state:
            if self._has:
                self._until(until)
