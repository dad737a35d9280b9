"""A lock among the processes of one host."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import cast

from gpuworker.model_spec import ModelLoadError

PROBE = "probe"


class HostLock:
    """A file that this engine locks while it uses a GPU: a second line of defence among the processes of one host.

    Args:
        folder: visible to all workers of the host; None locks nothing.

    Raises:
        ModelLoadError: the folder cannot be used.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._descriptor: int | None = None
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                os.close(self._open(PROBE))
            except OSError as error:
                raise ModelLoadError(f"gpu_lease_dir {folder} cannot be used: {error.strerror}") from error

    def acquire(self, name: str) -> None:
        """Waits until no other process has locked the file of that name, and locks it."""
        if self._folder is None:
            return
        descriptor = self._open(name)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._descriptor = descriptor

    def _open(self, name: str) -> int:
        """Opens the file of that name. It may belong to another user: a lock needs no permission to write."""
        path = cast("Path", self._folder) / f"redbatch-{name}.lock"
        if path.exists():
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def release(self) -> None:
        """Unlocks the file."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile has it open, too
            os.close(self._descriptor)
            self._descriptor = None

    def disown(self) -> None:
        """Closes the file, without unlocking it, in a process that was forked, which uses no GPU."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
