"""The private folder of a Redis server, and the removal of those that killed processes have left."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "redbatch-redis-"
LOCK_FILE = "lock"
FORMER_FILES = frozenset({"redis.log", "redis.sock"})
"""What is in a folder of a version that locked none."""

FORMER_AGE_S = 24 * 3600.0
"""Such a folder is removed after this time without a change: a server without a socket in it may still run."""

SHORT_BASE = "/tmp"  # noqa: S108 - the folders in it are private
MAX_SOCKET_PATH_BYTES = 100
"""The kernel's limit is 107, and 103 on macOS."""


class PrivateFolder:
    """A new folder of mode 0700, whose path is short enough for that of a socket in it.

    Attributes:
        path: of the folder.
        descriptor: holds the lock of the folder, and so does each process that inherits it. A folder whose lock is free
            was left by killed processes.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(self) -> None:
        self.path = _make_folder()
        partial = self.path / f"{LOCK_FILE}.part"
        self.descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        partial.replace(self.path / LOCK_FILE)  # after it is locked: the lock is never seen free

    def remove(self) -> None:
        """Removes the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.descriptor)


def remove_abandoned_folders() -> None:
    """Removes the private folders of this user whose processes have ended without doing so, as after `kill -9`."""
    for base in {tempfile.gettempdir(), SHORT_BASE}:
        for path in Path(base).glob(f"{PREFIX}*"):
            with suppress(OSError):
                _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    """Removes a folder, unless it is in use or no private folder of this user. Raises OSError: it is locked."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        return  # in a shared folder anyone could have created it
    if not (path / LOCK_FILE).exists():
        if _is_former(path, status.st_mtime) and not _has_server(path / "redis.sock"):
            shutil.rmtree(path)
        return
    descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(descriptor)


def _is_former(path: Path, changed_at: float) -> bool:
    """Whether a folder is old, and of a version that locked none: it has nothing but the files of its server."""
    return time.time() - changed_at > FORMER_AGE_S and {each.name for each in path.iterdir()} <= FORMER_FILES


def _has_server(path: Path) -> bool:
    """Whether a server accepts connections on the socket at a path."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it is busy, or not ours to reach
            return True
    return True


def _make_folder() -> Path:
    name = tempfile.mkdtemp(prefix=PREFIX)
    if len(os.fsencode(name)) + len("/redis.sock") <= MAX_SOCKET_PATH_BYTES:
        return Path(name)
    Path(name).rmdir()
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHORT_BASE))
