"""A lock among the processes of one host."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class HostLock:
    """A file that this engine has locked while it uses a GPU: a second line of defence among processes of one host.

    Args:
        folder: that all workers of the host see; None locks nothing.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._locked: int | None = None

    def take(self, name: str) -> None:
        """Waits until nobody else has the file of that name. Raises OSError: the folder cannot be written to."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"redbatch-{name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._locked = descriptor

    def give(self) -> None:
        """Unlocks it."""
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None
