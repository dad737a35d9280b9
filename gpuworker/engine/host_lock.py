"""A lock among the processes of one host."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import cast

from gpuworker.models import ModelLoadError

PROBE = "probe"


class HostLock:
    """A file that this engine has locked while it uses a GPU: a second line of defence among processes of one host.

    Args:
        folder: that all workers of the host see; None locks nothing.

    Raises:
        ModelLoadError: it cannot be used.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._locked: int | None = None
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                os.close(self._opened(PROBE))
            except OSError as error:
                raise ModelLoadError(f"gpu_lease_dir {folder} cannot be used: {error.strerror}") from error

    def take(self, name: str) -> None:
        """Waits until nobody else has the file of that name."""
        if self._folder is None:
            return
        descriptor = self._opened(name)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._locked = descriptor

    def _opened(self, name: str) -> int:
        """Opens the file of that name, which may be another user's: to lock it, one need not write to it."""
        path = cast("Path", self._folder) / f"redbatch-{name}.lock"
        if path.exists():
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def give(self) -> None:
        """Unlocks it."""
        if self._locked is not None:
            fcntl.flock(self._locked, fcntl.LOCK_UN)  # a process that was forked meanwhile has it open, too
            os.close(self._locked)
            self._locked = None

    def disown(self) -> None:
        """Lets go of it in a process that was forked, which uses no GPU."""
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None
