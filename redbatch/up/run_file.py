"""Where `redbatch up` says that it runs, so that other commands of the same user find it."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "up.json"


@dataclass(frozen=True, slots=True)
class Running:
    """A running `redbatch up`: its process, the URL of its API, its Redis and its queue."""

    pid: int
    url: str
    redis_url: str
    queue: str


def _private_directory() -> Path:
    """Returns the folder for this user's run files. Raises FileNotFoundError when there is none.

    Raises PermissionError when it belongs to somebody else or is open to others: in a shared temporary folder anybody
    could have put it there, and what it says would be believed.
    """
    directory = _directory()
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private folder of this user")
    return directory


def _directory() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"redbatch-{os.getuid()}"


def announce(running: Running) -> None:
    """Writes the run file, in place of that of another `up`. Raises OSError when the folder cannot be used."""
    _directory().mkdir(mode=0o700, exist_ok=True)
    path = _private_directory() / FILE_NAME
    partial = path.with_suffix(f".{running.pid}")
    # Mode 0600 from the start: the URL of Redis may hold a password.
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(running), file)
    partial.replace(path)


def withdraw(pid: int) -> None:
    """Removes the run file if it is that process' own, and the folder when nothing else is in it."""
    running = _read()
    if running is not None and running.pid == pid:
        path = _private_directory() / FILE_NAME
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def find_running() -> Running | None:
    """Returns this user's running `redbatch up`, or None. What a killed one left behind does not count."""
    running = _read()
    return running if running is not None and _alive(running.pid) else None


def _read() -> Running | None:
    try:
        return Running(**json.loads((_private_directory() / FILE_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
