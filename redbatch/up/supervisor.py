"""Keeps one child process running, relays its output, and ends it on request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Protocol

from redbatch.up.child_spec import ChildSpec
from redbatch.up.line_reader import LineReader
from redbatch.up.restarts import GiveUp, decide_restart
from shared.process.parent_death import wrap_command


class SupervisorCallbacks(Protocol):
    """How a supervisor reports to its cluster, and learns whether the cluster was ever ready."""

    def on_line(self, name: str, text: str) -> None:
        """Receives a line of the child's output."""

    def on_event(self, name: str, text: str) -> None:
        """Receives a message about the child: its death, its restart."""

    def on_give_up(self, name: str, last_line: str) -> None:
        """Receives the report that the child cannot run; `last_line` is the last line of its output, or the error."""

    def was_ready(self) -> bool:
        """Returns whether the cluster has been ready to serve."""


class Supervisor:
    """Supervises one child process, in a separate session so that the terminal's Ctrl-C reaches only `up`."""

    def __init__(self, spec: ChildSpec, callbacks: SupervisorCallbacks) -> None:
        self.spec = spec
        self._callbacks = callbacks
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._last_line = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the child runs, else None."""
        return self._process.pid if self._process and self._process.returncode is None else None

    def start(self) -> None:
        """Starts the process, and restarts it when it dies, until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._keep_running())
        self._task.add_done_callback(self._report_error)

    def _report_error(self, task: asyncio.Task[None]) -> None:
        """Reports a failure of the supervision itself: no memory for another process, for example."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._callbacks.on_give_up(self.spec.name, str(error))

    async def stop(self, grace_s: float) -> None:
        """Ends the process with SIGTERM and waits. After `grace_s`, kills it and all of its children."""
        self._stopping.set()
        self._signal(signal.SIGTERM, group=False)
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=grace_s)
        if not done:
            self._callbacks.on_event(self.spec.name, f"did not stop within {grace_s:.0f} s; killing it")
            self.kill()
            await asyncio.wait([self._task])

    def kill(self) -> None:
        """Kills the process and its children at once; it is not restarted."""
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
            decision = decide_restart(code, clock() - started, quick_deaths, was_ready=self._callbacks.was_ready())
            if isinstance(decision, GiveUp):
                self._callbacks.on_give_up(self.spec.name, self._last_line)
                return
            quick_deaths = decision.quick_deaths
            when = f"in {decision.delay_s:g} s" if decision.delay_s else "now"
            self._callbacks.on_event(self.spec.name, f"{_describe_exit(code)}; starting again {when}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), decision.delay_s)

    async def _run_once(self) -> int:
        """Runs the process to its end and returns its exit code, or the negated number of the signal that ended it."""
        reader = LineReader(self._take_line)
        self._process = await asyncio.create_subprocess_exec(
            *wrap_command(self.spec.command, signal.SIGTERM),
            stdin=asyncio.subprocess.DEVNULL,
            # A pipe of this module: with a pipe of asyncio, `wait` would also wait for grandchildren that hold it open.
            stdout=reader.descriptor,
            stderr=reader.descriptor,
            env=self.spec.environment,
            pass_fds=self.spec.descriptors,
            start_new_session=True,
        )
        reader.start()
        reader.close_writer()
        if self._stopping.is_set():  # `stop` was called while the process was being created
            self._signal(signal.SIGTERM, group=False)
        code = await self._process.wait()
        # The rest of its process group (an engine, for example) must not outlive it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await reader.finish()
        return code

    def _take_line(self, text: str) -> None:
        self._last_line = text or self._last_line
        self._callbacks.on_line(self.spec.name, text)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
