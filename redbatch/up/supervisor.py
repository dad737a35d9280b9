"""Keeps one child process running, relays what it prints, and ends it when asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Protocol

from redbatch.up.cluster import ChildSpec
from shared.process.parent_death import wrapped
from redbatch.up.restarts import GiveUp, after_death

LONGEST_LINE_BYTES = 1 << 20
LAST_LINES_S = 0.5


class Watch(Protocol):
    """What a child tells its cluster, and asks it."""

    def line(self, name: str, text: str) -> None:
        """Takes a line that the child printed."""

    def note(self, name: str, text: str) -> None:
        """Takes a line about the child: that it died, that it starts again."""

    def give_up(self, name: str, last_line: str) -> None:
        """Learns that the child cannot run at all."""

    def ever_ready(self) -> bool:
        """Says whether the cluster has served."""


class LineReader:
    """Hands on each line written to a pipe. `descriptor` is the end to write to; close it with `close_writer`."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._read, self.descriptor = os.pipe()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Reads from now on."""
        self._task = asyncio.get_running_loop().create_task(self._relay())

    def close_writer(self) -> None:
        """Closes this process' copy of the end to write to. Reading ends when all others have closed theirs."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    async def finish(self) -> None:
        """Reads what is left. Does not wait for a grandchild that still holds the pipe."""
        self.close_writer()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_LINES_S)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _relay(self) -> None:
        reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._read, "rb")
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # longer than any log line; the reader has thrown it away
                    continue
                if not line:
                    return
                self._take(line.decode(errors="replace").rstrip())
        finally:
            transport.close()


class Child:
    """One supervised process, in a session of its own so that the terminal's Ctrl-C reaches only `up`."""

    def __init__(self, spec: ChildSpec, watch: Watch) -> None:
        self.spec = spec
        self._watch = watch
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._last_line = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    def start(self) -> None:
        """Starts the process, and again whenever it dies, until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._keep_running())
        self._task.add_done_callback(self._report)

    def _report(self, task: asyncio.Task[None]) -> None:
        """Tells the cluster when the supervision itself failed: no memory, say, for another process."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._watch.give_up(self.spec.name, str(error))

    async def stop(self, grace_s: float) -> None:
        """Ends the process with SIGTERM and waits; after the grace time kills it with all of its children."""
        self._stopping.set()
        self._signal(signal.SIGTERM, group=False)
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=grace_s)
        if not done:
            self._watch.note(self.spec.name, f"did not stop within {grace_s:.0f} s; killing it")
            self.kill()
            await asyncio.wait([self._task])

    def kill(self) -> None:
        """Kills the process and its children at once, and does not start it again."""
        self._stopping.set()
        self._signal(signal.SIGKILL, group=True)

    def _signal(self, number: signal.Signals, *, group: bool) -> None:
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    async def _keep_running(self) -> None:
        quick_deaths = 0
        clock = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            started = clock()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            decision = after_death(code, clock() - started, quick_deaths, ever_ready=self._watch.ever_ready())
            if isinstance(decision, GiveUp):
                self._watch.give_up(self.spec.name, self._last_line)
                return
            quick_deaths = decision.quick_deaths
            when = f"in {decision.delay_s:g} s" if decision.delay_s else "now"
            self._watch.note(self.spec.name, f"{_how_it_ended(code)}; starting again {when}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), decision.delay_s)

    async def _run_once(self) -> int:
        """Runs the process to its end and returns its exit code; negative: the signal that ended it."""
        lines = LineReader(self._take_line)
        self._process = await asyncio.create_subprocess_exec(
            *wrapped(self.spec.command, signal.SIGTERM),
            stdin=asyncio.subprocess.DEVNULL,
            # A pipe of our own: asyncio's would make `wait` wait for grandchildren that hold it.
            stdout=lines.descriptor,
            stderr=lines.descriptor,
            env=self.spec.environment,
            pass_fds=self.spec.descriptors,
            start_new_session=True,
        )
        lines.start()
        lines.close_writer()
        if self._stopping.is_set():  # asked to stop while the process was being made
            self._signal(signal.SIGTERM, group=False)
        code = await self._process.wait()
        # What is left of its group (an engine, say) must not outlive it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await lines.finish()
        return code

    def _take_line(self, text: str) -> None:
        self._last_line = text or self._last_line
        self._watch.line(self.spec.name, text)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
