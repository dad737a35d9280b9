"""Keeps suspects apart from other inputs where an input may kill the engine, so that no other input is accused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class IsolationLock:
    """A lock for code in which inputs may kill the engine: batches, and `preprocess` of a user's function.

    A suspect holds it alone; all other inputs share it. A suspect that waits is next.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = self._num_isolated_waiting = 0
        self._isolated = False

    @contextmanager
    def enter(self, *, isolated: bool) -> Iterator[None]:
        """Waits for the lock, alone if `isolated`; holds it while the block runs."""
        with self._changed:
            if isolated:
                self._num_isolated_waiting += 1
                self._changed.wait_for(lambda: not self._num_inside)
                self._num_isolated_waiting -= 1
                self._isolated = True
            else:
                self._changed.wait_for(lambda: not (self._isolated or self._num_isolated_waiting))
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._isolated = False
                self._changed.notify_all()
