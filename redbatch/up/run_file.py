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

from shared.redis_url import split_urls

PATTERN = "up-*.json"


class NoUpError(Exception):
    """No running `redbatch up` is meant, or several may be; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """Content of a run file: process id of a `redbatch up`, URL of its API, URL of its Redis, name of its queue.

    `requires_keys` is whether its gateways admit only clients with an API key, `has_private_redis` whether its Redis
    ends with it. With shards, `redis_shards` has their URLs, and `redis_url` is empty.
    """

    pid: int
    url: str
    redis_url: str
    queue: str
    requires_keys: bool = False
    has_private_redis: bool = True
    redis_shards: str = ""

    @property
    def redis_settings(self) -> dict[str, str]:
        """The setting that names its Redis."""
        return {"redis_shards": self.redis_shards} if self.redis_shards else {"redis_url": self.redis_url}

    @property
    def redis_urls(self) -> tuple[str, ...]:
        """The URL of each of its Redis, in the order of the shards."""
        return split_urls(self.redis_shards) or (self.redis_url,)

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
        self._path = _path_of(run_file)
        partial = self._path.with_suffix(".part")
        # Mode 0600 from the start: the URL of Redis may contain a password.
        self._descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, json.dumps(asdict(run_file)).encode())
        partial.replace(self._path)

    def hide(self) -> None:
        """Removes the run file, and then the folder if it is empty: no command joins any more. Its lock stays."""
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()

    def withdraw(self) -> None:
        """Removes the run file, and lets the processes know that have joined: see `wait_until_ended`."""
        self.hide()
        os.close(self._descriptor)


def find_running_ups() -> list[RunFile]:
    """Returns the run files of this user's running `redbatch up`, by port. Removes those that killed ones left."""
    try:
        paths = list(_private_directory().glob(PATTERN))
    except OSError:
        return []
    return sorted(filter(None, map(_read, paths)), key=lambda each: each.port)


def find_up(port: int | None, instead: str = "the URL of a Redis with --redis-url") -> RunFile:
    """Returns the run file of this user's `redbatch up` whose API has this port; of the only one for None.

    Raises NoUpError: there is none, or there are several; the message lists the choices. `instead` is what the user can
    give in place of a running `up`.
    """
    running = find_running_ups()
    if not running:
        raise NoUpError(f"found no running `redbatch up` of yours: start one, or give {instead}")
    matching = [each for each in running if port in {None, each.port}]
    if len(matching) == 1:
        return matching[0]
    choices = ", ".join(f"--up {each.port} ({each.queue}, {each.url})" for each in running)
    if not matching:
        raise NoUpError(f"no running `redbatch up` of yours has port {port}: choose {choices}")
    raise NoUpError(f"several `redbatch up` of yours are running: choose {choices}, or give {instead}")


def wait_until_ended(run_file: RunFile) -> None:
    """Blocks until a `redbatch up` was killed, or has stopped its gateways: until the lock of its run file is free."""
    with contextlib.suppress(OSError), _path_of(run_file).open() as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_SH)


def _path_of(run_file: RunFile) -> Path:
    return _private_directory() / PATTERN.replace("*", str(run_file.pid))


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
