"""The file in which `redbatch up` announces itself, so that other commands of the same user find it."""

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
class RunFile:
    """Content of the run file: process id of a `redbatch up`, URL of its API, URL of its Redis, name of its queue."""

    pid: int
    url: str
    redis_url: str
    queue: str


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


def write_run_file(run_file: RunFile) -> None:
    """Writes the run file; replaces that of another `up`. Raises OSError if the folder cannot be used."""
    _directory().mkdir(mode=0o700, exist_ok=True)
    path = _private_directory() / FILE_NAME
    partial = path.with_suffix(f".{run_file.pid}")
    # Mode 0600 from the start: the URL of Redis may contain a password.
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(run_file), file)
    partial.replace(path)


def remove_run_file(pid: int) -> None:
    """Removes the run file if process `pid` wrote it, and then the folder if it is empty."""
    run_file = _read()
    if run_file is not None and run_file.pid == pid:
        path = _private_directory() / FILE_NAME
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def find_running_up() -> RunFile | None:
    """Returns the run file of this user's running `redbatch up`, or None. The run file of a killed one is ignored."""
    run_file = _read()
    return run_file if run_file is not None and _is_alive(run_file.pid) else None


def _read() -> RunFile | None:
    try:
        return RunFile(**json.loads((_private_directory() / FILE_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
