"""When an engine may run on a device: always, or for one batch at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import LeaseGuard
from gpuworker.ipc.messages import TurnEnded, TurnReport, TurnRequested, TurnStarted


class GpuTurn(Protocol):
    """The right to use the device, which the pipeline acquires before each batch."""

    @property
    def held(self) -> bool:
        """Whether a batch may run."""

    def acquire(self) -> None:
        """Waits until it is this engine's turn, unless it is."""

    def release(self) -> None:
        """Ends the turn, if it is this engine's."""


class UnsharedTurn:
    """This engine owns the device."""

    held = True

    def acquire(self) -> None:
        """Does nothing: it is always this engine's turn."""

    def release(self) -> None:
        """Does nothing: the turn never ends."""


UNSHARED = UnsharedTurn()


class SharedTurn:
    """The turn of an engine where workers take turns on a GPU.

    One thread acquires and releases turns: that of the only runner.

    Args:
        lease_guard: learns when a turn begins and ends.
        lock: of the host.
        send: sends a message to the worker.
    """

    def __init__(self, lease_guard: LeaseGuard, lock: HostLock, send: Callable[[TurnReport], None]) -> None:
        self._lease_guard, self._lock, self._send = lease_guard, lock, send
        self._changed = threading.Condition()
        self._lock_name = ""
        self._granted = False
        self.held = False

    def acquire(self) -> None:
        """Waits until it is this engine's turn, unless it is."""
        with self._changed:
            if self._granted:
                return
            self._send(TurnRequested())
            self._changed.wait_for(lambda: self._granted)
        self._lock.acquire(self._lock_name)
        self._send(TurnStarted())
        self.held = True

    def release(self) -> None:
        """Ends the turn, if it is this engine's."""
        with self._changed:
            if not self._granted:
                return
            self._granted = self.held = False
        self._lock.release()
        self._lease_guard.end()
        self._send(TurnEnded())

    def grant(self, lock_name: str) -> None:
        """Starts a turn of this engine, which has to acquire this lock for it."""
        with self._changed:
            self._granted, self._lock_name = True, lock_name
            self._lease_guard.begin()
            self._changed.notify()
