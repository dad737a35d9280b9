"""The files in which the `redbatch up` of one user announce themselves, so that other commands find them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

PATTERN = "up-*.json"


@dataclass(frozen=True, slots=True)
class RunFile:
    """Content of a run file: process id of a `redbatch up`, URL of its API, URL of its Redis, name of its queue."""

    pid: int
    url: str
    redis_url: str
    queue: str

    @property
    def port(self) -> int:
        """The port of its API, which distinguishes it from other `up` of this user."""
        return urlsplit(self.url).port or 0


def _private_directory() -> Path:
    """Returns the folder for this user's run files.

    Raises:
        FileNotFoundError: there is no such folder.
        PermissionError: it belongs to another user or is open to others. In a shared temporary folder anyone could
            have created it, and commands would trust its content.
    """
    directory = _directory()
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private folder of this user")
    return directory


def _directory() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"redbatch-{os.getuid()}"


class Announcement:
    """The run file of this process. Its lock ends with the process: a file without one was left by a killed `up`.

    Raises:
        OSError: the folder cannot be used.
    """

    def __init__(self, run_file: RunFile) -> None:
        _directory().mkdir(mode=0o700, exist_ok=True)
        self._path = _private_directory() / PATTERN.replace("*", str(run_file.pid))
        partial = self._path.with_suffix(".part")
        # Mode 0600 from the start: the URL of Redis may contain a password.
        self._descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, json.dumps(asdict(run_file)).encode())
        partial.replace(self._path)

    def withdraw(self) -> None:
        """Removes the run file, and then the folder if it is empty."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()


def find_running_ups() -> list[RunFile]:
    """Returns the run files of this user's running `redbatch up`, by port. Removes those that killed ones left."""
    try:
        paths = list(_private_directory().glob(PATTERN))
    except OSError:
        return []
    return sorted(filter(None, map(_read, paths)), key=lambda each: each.port)


def _read(path: Path) -> RunFile | None:
    """Returns a run file; None if it is unreadable, or if its `up` has ended: then removes it."""
    try:
        with path.open() as file:
            if _was_left(file.fileno()):
                path.unlink(missing_ok=True)
                return None
            return RunFile(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def _was_left(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
