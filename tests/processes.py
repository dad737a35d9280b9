"""Starts the programs of the cluster as real processes, reads their logs, and checks that no process remains.

Each program starts a new session (setsid), which all of its descendants share. So orphans are found without knowing
their pids, and only processes that a test started are ever killed. If the test process is killed, so is the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from shared.connection import RedisConnection
from shared.keys import Keys
from shared.messages import Heartbeat
from shared.process.parent_death import wrap_command
from shared.producer import queue_stats
from tests.users import with_role_user
from tests.waiting import wait_until

STOP_S = 30.0
START_S = 60.0
ORPHAN_GRACE_S = 10.0
TAIL_LINES = 30

Ready = Callable[["Program"], bool | Awaitable[bool]]


class Program:
    """One program: its process, its descendants, and its log."""

    def __init__(self, name: str, module: str, env: Mapping[str, str], log: Path) -> None:
        """Starts `python -m module`; the words after the first are arguments."""
        self.name = name
        self._log = log
        clean = {key: value for key, value in os.environ.items() if not key.startswith("REDBATCH_")}
        with log.open("wb") as out:
            self._popen = subprocess.Popen(
                wrap_command([sys.executable, "-P", "-m", *module.split()], signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=clean | dict(env),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also the session id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the program has not ended."""
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        """Everything that the program and its descendants have written."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def log_records(self, message: str) -> list[dict[str, Any]]:
        """Returns the log records with this message, in their order; lines that are not JSON objects are skipped."""
        records = []
        for line in self.output.splitlines():
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict) and value.get("msg") == message:
                    records.append(value)
        return records

    def session(self) -> list[psutil.Process]:
        """Returns every living process of the session: the program and all of its descendants, orphans included."""
        return [each for each in psutil.process_iter() if _session_of(each.pid) == self.pid and _is_alive(each)]

    def descendants(self, title: str) -> list[psutil.Process]:
        """Returns the processes of the session whose command line contains a text, for example `redbatch engine`."""
        matching = []
        for each in self.session():
            with contextlib.suppress(psutil.Error):
                if title in " ".join(each.cmdline()):
                    matching.append(each)
        return matching

    def signal(self, number: int) -> None:
        """Sends a signal to the program, but not to its descendants."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """Kills the program (SIGKILL), but not its descendants, and waits until it has ended."""
        self._popen.kill()
        self._popen.wait(STOP_S)

    async def wait_until_ended(self, timeout_s: float = STOP_S) -> int:
        """Waits until the program has ended and returns its exit code."""
        await wait_until(lambda: not self.running, f"{self.name} has ended", timeout_s=timeout_s)
        return self._popen.wait()

    async def stop(self, timeout_s: float = STOP_S) -> int:
        """Sends SIGTERM unless the program has ended, waits until it has ended, and returns its exit code."""
        if self.running:
            self.signal(signal.SIGTERM)
        return await self.wait_until_ended(timeout_s)

    def log_tail(self) -> str:
        """Returns the last lines of the log, for the message of a failed test."""
        return "\n".join([f"--- {self.name}", *self.output.splitlines()[-TAIL_LINES:]])


class Processes:
    """All programs that a test has started. At the end of the block all are stopped, and no process may remain.

    Args:
        folder: the folder of the logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Program] = []

    async def start(self, name: str, module: str, env: Mapping[str, str], ready: Ready | None = None) -> Program:
        """Starts `python -m module` with an environment and, if `ready` is given, waits until the program is ready."""
        env = with_role_user(module, env)
        program = Program(name, module, env, self._folder / f"{len(self._all)}-{name}.log")
        self._all.append(program)
        if ready is not None:
            await self.wait_until_ready(program, ready)
        return program

    async def wait_until_ready(self, program: Program, ready: Ready, timeout_s: float = START_S) -> None:
        """Waits until a program is ready. Raises AssertionError with the end of its log if it ends instead."""

        async def ready_or_ended() -> bool:
            result = ready(program)
            return (result if isinstance(result, bool) else await result) or not program.running

        try:
            await wait_until(ready_or_ended, f"{program.name} is ready", timeout_s=timeout_s, poll_s=0.02)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{program.log_tail()}") from None
        assert program.running, f"{program.name} ended\n{program.log_tail()}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        slow = []
        for program in self._all:
            if program.running:
                program.signal(signal.SIGTERM)
        for program in self._all:
            try:
                await program.wait_until_ended()
            except AssertionError:
                slow.append(program.name)
                program.kill()
        remaining = self._kill_remaining()
        sys.stdout.write("\n".join(program.log_tail() for program in self._all))  # shown if the test fails
        assert (slow, remaining) == ([], []), "programs that did not stop, and processes that remained"

    def _kill_remaining(self) -> list[str]:
        """Waits up to ORPHAN_GRACE_S until orphans have ended, kills the others, and returns their command lines."""
        until = time.monotonic() + ORPHAN_GRACE_S
        while (remaining := [each for program in self._all for each in program.session()]) and time.monotonic() < until:
            psutil.wait_procs(remaining, timeout=0.02)
        commands = []
        for each in remaining:
            with contextlib.suppress(psutil.Error):
                commands.append(" ".join(each.cmdline()))
                each.kill()
        return commands


def heartbeat_is_ready(connection: RedisConnection, keys: Keys) -> Ready:
    """Returns a condition: the worker's heartbeat says that it is ready."""

    async def ready(program: Program) -> bool:
        beat = await heartbeat_of(program, connection, keys)
        return beat is not None and beat.state == "ready"

    return ready


async def heartbeat_of(program: Program, connection: RedisConnection, keys: Keys) -> Heartbeat | None:
    """Returns the latest heartbeat of a worker, or None if it has none that has not expired."""
    beats = [beat for beat in (await queue_stats(connection, keys)).workers if beat.pid == program.pid]
    return beats[0] if beats else None


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process exists and is not a zombie, an entry whose exit status its parent has not read yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
