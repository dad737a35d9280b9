"""Starts the programs of the cluster as real processes, reads what they log, and sees that nothing of them is left.

Each program begins a session of its own (setsid), which all of its descendants share: so the forgotten ones are found
without knowing them, and only what a test started is ever ended. When the tests are killed, so is the program.
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

STOP_S = 15.0
START_S = 60.0
GONE_S = 3.0
LAST_LINES = 30

Ready = Callable[["Program"], bool | Awaitable[bool]]


class Program:
    """One running program: its process, its descendants, and its log."""

    def __init__(self, name: str, module: str, env: Mapping[str, str], log: Path) -> None:
        """Starts `python -m module`, where more words than one are arguments."""
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
        """The process id, which is also the id of its session."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        """All that it and its descendants have written."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def log_records(self, message: str) -> list[dict[str, Any]]:
        """Returns the log lines with this message, as they were logged; lines that are no JSON are passed over."""
        found = []
        for line in self.output.splitlines():
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict) and value.get("msg") == message:
                    found.append(value)
        return found

    def session(self) -> list[psutil.Process]:
        """Returns every living process of its session: itself and all of its descendants, orphaned ones too."""
        return [each for each in psutil.process_iter() if _session_of(each.pid) == self.pid and _lives(each)]

    def descendants(self, title: str) -> list[psutil.Process]:
        """Returns those of its session whose title holds a text: `redbatch engine`, say."""
        found = []
        for each in self.session():
            with contextlib.suppress(psutil.Error):
                if title in " ".join(each.cmdline()):
                    found.append(each)
        return found

    def signal(self, number: int) -> None:
        """Sends the program itself, and none of its descendants, a signal."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """Kills the program alone with -9, and waits until it is gone."""
        self._popen.kill()
        self._popen.wait(STOP_S)

    async def wait_until_ended(self, timeout_s: float = STOP_S) -> int:
        """Waits for its end and returns the exit code."""
        await wait_until(lambda: not self.running, f"{self.name} has ended", timeout_s=timeout_s)
        return self._popen.wait()

    async def stop(self, timeout_s: float = STOP_S) -> int:
        """Ends it with SIGTERM and returns the exit code; one that has ended already keeps its own."""
        if self.running:
            self.signal(signal.SIGTERM)
        return await self.wait_until_ended(timeout_s)

    def log_tail(self) -> str:
        """The end of its log, for the message of a failed test."""
        return "\n".join([f"--- {self.name}", *self.output.splitlines()[-LAST_LINES:]])


class Processes:
    """Everything that a test has started; at its end all are stopped, and none may have left a process behind.

    Args:
        folder: where the logs go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Program] = []

    async def start(self, name: str, module: str, env: Mapping[str, str], ready: Ready | None = None) -> Program:
        """Starts `python -m module` with the given environment and waits until it is ready."""
        env = with_role_user(module, env)
        program = Program(name, module, env, self._folder / f"{len(self._all)}-{name}.log")
        self._all.append(program)
        if ready is not None:
            await self.wait_until_ready(program, ready)
        return program

    async def wait_until_ready(self, program: Program, ready: Ready, timeout_s: float = START_S) -> None:
        """Waits until a program is ready; fails with its last words when it ends instead."""

        async def ready_or_gone() -> bool:
            found = ready(program)
            return (found if isinstance(found, bool) else await found) or not program.running

        try:
            await wait_until(ready_or_gone, f"{program.name} is ready", timeout_s=timeout_s, poll_s=0.02)
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
        left = self._remove_what_is_left()
        sys.stdout.write("\n".join(program.log_tail() for program in self._all))  # shown when the test fails
        assert (slow, left) == ([], []), "programs that did not stop, and processes that they left"

    def _remove_what_is_left(self) -> list[str]:
        """Gives orphans a moment to notice, then kills what is still there and returns what that was."""
        until = time.monotonic() + GONE_S
        while (left := [each for program in self._all for each in program.session()]) and time.monotonic() < until:
            psutil.wait_procs(left, timeout=0.02)
        named = []
        for each in left:
            with contextlib.suppress(psutil.Error):
                named.append(" ".join(each.cmdline()))
                each.kill()
        return named


def heartbeat_is_ready(connection: RedisConnection, keys: Keys) -> Ready:
    """Returns what tells that a worker has said in its heartbeat that it is ready."""

    async def ready(program: Program) -> bool:
        beat = await heartbeat_of(program, connection, keys)
        return beat is not None and beat.state == "ready"

    return ready


async def heartbeat_of(program: Program, connection: RedisConnection, keys: Keys) -> Heartbeat | None:
    """Returns the latest heartbeat of a worker, or None when it has none that lives."""
    beats = [beat for beat in (await queue_stats(connection, keys)).workers if beat.pid == program.pid]
    return beats[0] if beats else None


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _lives(process: psutil.Process) -> bool:
    """Whether a process is more than an entry in the table that nobody has read yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
