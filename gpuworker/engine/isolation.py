"""Keeps whoever is beside a suspect out of what may kill the engine: who would be accused with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Quarantine:
    """Where inputs may take the engine with them: in a batch, and in a user's own `preprocess`.

    Suspects are in there alone, all others side by side. One that waits to be alone is next.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = self._waiting = 0
        self._closed = False

    @contextmanager
    def entered(self, *, alone: bool) -> Iterator[None]:
        """Waits until one may be in there; is in there for as long as the block takes."""
        with self._changed:
            if alone:
                self._waiting += 1
                self._changed.wait_for(lambda: not self._inside)
                self._waiting -= 1
                self._closed = True
            else:
                self._changed.wait_for(lambda: not (self._closed or self._waiting))
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._closed = False
                self._changed.notify_all()
