"""The folder in which the Redis of `redbatch up` keep their data over restarts; one `up` uses it at a time."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

LOCK_FILE, KEY_FILE = "redbatch.lock", "api-key"
NEW_LOG, NEW_LOG_VERSION = "appendonlydir", 7
"""The folder of the append-only files of this version of Redis and newer ones, which older servers ignore."""

LOGS = (NEW_LOG, "appendonly.aof")
SHARD_FOLDER = "shard-"
"""Begins the names of the folders in it that the Redis of several shards have."""

LOCK_WAIT_S = 3.0
"""The Redis of an `up` that was killed may need this time to end: it holds the lock until then."""

RETRY_S = 0.05


class DataDirError(RuntimeError):
    """The folder cannot be used; the message says what to do."""


class DataDir:
    """A folder of mode 0700, locked while this process, or a server that inherited `descriptor`, lives.

    Attributes:
        path: absolute, without links.
        descriptor: of the lock.
        shards: the folder of each of `num_shards` Redis; for one, this folder.

    Raises:
        DataDirError: the folder holds other files, belongs to another user, or is in use; or it has data of Redis that
            would not be started.
    """

    def __init__(self, path: Path, num_shards: int = 1) -> None:
        self.path = Path(os.path.realpath(path.expanduser()))
        try:
            self._prepare()
            self.descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
            self._lock()
        except OSError as error:
            raise DataDirError(f"{self.path} cannot be used ({error.strerror}): name another --data-dir") from None
        self.shards: tuple[DataDir, ...] = (self,)
        try:
            self._check_kept(num_shards)
            if num_shards > 1:
                self.shards = ()
                for number in range(num_shards):
                    self.shards += (DataDir(self.path / f"{SHARD_FOLDER}{number}"),)
        except DataDirError:
            self.close()
            raise

    def _check_kept(self, num_shards: int) -> None:
        """Raises DataDirError: there are data of Redis that this number of shards leaves out."""
        names = os.listdir(self.path)  # noqa: PTH208 - names alone
        num_kept = sum(name.startswith(SHARD_FOLDER) for name in names)
        if num_shards > 1 and any(name in LOGS for name in names):
            raise DataDirError(
                f"{self.path} has the data of one Redis: leave out --redis-shards, or name another --data-dir"
            )
        if num_kept > num_shards:
            raise DataDirError(
                f"{self.path} has the data of {num_kept} shards: start with --redis-shards {num_kept}, or name "
                "another --data-dir"
            )

    def _prepare(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.stat().st_uid != os.getuid():
            raise DataDirError(f"{self.path} belongs to another user: name a folder of yours with --data-dir")
        names = os.listdir(self.path)  # noqa: PTH208 - names alone
        if names and LOCK_FILE not in names:
            raise DataDirError(f"{self.path} holds other files: name an empty or a new folder with --data-dir")
        self.path.chmod(0o700)

    def _lock(self) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(RETRY_S)
                    continue
                pid = os.pread(self.descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(self.descriptor)
                raise DataDirError(
                    f"{self.path} is in use by another `redbatch up` (process {pid}): stop that one, or name another "
                    "folder with --data-dir"
                ) from None
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, b"%d\n" % os.getpid(), 0)
            return

    def check_server(self, server: Path) -> None:
        """Raises DataDirError: a newer server wrote the data, and this one would start without it."""
        if not (self.path / NEW_LOG).exists():
            return
        output = subprocess.run([server, "--version"], capture_output=True, check=False, text=True).stdout
        match = re.search(r"v=(\d+)", output)
        if match is not None and int(match[1]) < NEW_LOG_VERSION:
            raise DataDirError(
                f"{self.path} was written by Redis 7 or newer, and {server} is older: put a newer redis-server first "
                "on the PATH, or name another folder with --data-dir"
            )

    def read_api_key(self) -> str:
        """Returns the API key that an earlier `up` created; "" if there is none."""
        with suppress(OSError, ValueError):
            return (self.path / KEY_FILE).read_text("ascii").strip()
        return ""

    def write_api_key(self, api_key: str) -> None:
        """Keeps the API key, with its secret, for the next `up`. Mode 0600. Raises DataDirError if writing fails."""
        path = self.path / KEY_FILE
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(f"{api_key}\n")
        except OSError as error:
            raise DataDirError(f"{path} cannot be written ({error.strerror}): name another --data-dir") from None

    def close(self) -> None:
        """Unlocks the folder and those of its shards, except what a server still uses."""
        for each in self.shards:
            if each is not self:
                each.close()
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
