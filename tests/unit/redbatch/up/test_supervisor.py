"""Supervision of children, with real processes."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field

import psutil

from redbatch.up.child_spec import ChildSpec
from redbatch.up.supervisor import Supervisor
from tests.waiting import wait_until


@dataclass
class CallbackRecorder:
    """Records the reports of supervisors, in place of a cluster."""

    lines: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    ready: bool = False

    def on_line(self, _name: str, text: str) -> None:
        """Records a line."""
        self.lines.append(text)

    def on_event(self, _name: str, text: str) -> None:
        """Records an event."""
        self.events.append(text)

    def on_give_up(self, _name: str, last_line: str) -> None:
        """Records the last line of a child that cannot run."""
        self.given_up.append(last_line)

    def was_ready(self) -> bool:
        """Returns the answer that the test has set."""
        return self.ready


WAIT = "import signal; signal.pause()"


def supervisor_of(program: str, recorder: CallbackRecorder) -> Supervisor:
    """Returns a supervisor of a child that runs a Python program."""
    return Supervisor(ChildSpec("child", [sys.executable, "-c", program], dict(os.environ)), recorder)


def gone(pid: int) -> bool:
    """Returns whether a process has ended; a zombie has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_lines_of_both_outputs_come_in_order() -> None:
    """Stdout and stderr are one stream of lines; the last line is passed on even without a newline."""
    recorder = CallbackRecorder()
    program = "import os; os.write(1, b'one\\n'); os.write(2, b'two\\nthree'); "
    supervisor = supervisor_of(program + WAIT, recorder)
    supervisor.start()
    await wait_until(lambda: len(recorder.lines) == 2, "both lines are there")
    await supervisor.stop(5)
    assert recorder.lines == ["one", "two", "three"]


async def test_a_killed_child_is_restarted() -> None:
    """A killed child is restarted at once, and the event names the signal."""
    recorder = CallbackRecorder()
    supervisor = supervisor_of("print('up', flush=True); " + WAIT, recorder)
    supervisor.start()
    await wait_until(lambda: len(recorder.lines) == 1, "it runs")
    first = supervisor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: len(recorder.lines) == 2, "it runs again")
    assert supervisor.pid != first
    assert recorder.events == ["was ended by SIGKILL; starting again now"]
    await supervisor.stop(5)
    assert supervisor.pid is None


async def test_a_child_that_cannot_run_is_given_up_with_its_last_line() -> None:
    """After exit code 2 in a cluster that was never ready, the child's last line is reported; it is not restarted."""
    recorder = CallbackRecorder()
    supervisor = supervisor_of("print('no such model'); raise SystemExit(2)", recorder)
    supervisor.start()
    await wait_until(lambda: bool(recorder.given_up), "it is given up")
    assert recorder.given_up == ["no such model"]
    assert recorder.events == []
    await supervisor.stop(5)


async def test_stop_ends_a_restart_delay() -> None:
    """`stop` during the delay before a restart returns at once, and the child is not restarted."""
    recorder = CallbackRecorder(ready=True)
    supervisor = supervisor_of("raise SystemExit(1)", recorder)
    supervisor.start()
    await wait_until(lambda: len(recorder.events) >= 3, "it died three times")
    await supervisor.stop(5)
    count = len(recorder.events)
    assert count < 6
    assert supervisor.pid is None


async def test_a_child_that_ignores_sigterm_is_killed_with_its_children() -> None:
    """After the grace time, no process of its group is left."""
    recorder = CallbackRecorder()
    program = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); pid = os.fork()\n"
        "if pid: print(pid, flush=True)\n"
        "while True: signal.pause()"
    )
    supervisor = supervisor_of(program, recorder)
    supervisor.start()
    await wait_until(lambda: bool(recorder.lines), "it ignores the signal")
    await supervisor.stop(0.05)
    assert "killing it" in recorder.events[0]
    await wait_until(lambda: gone(int(recorder.lines[0])), "its child is gone")


async def test_grandchildren_do_not_outlive_a_killed_child() -> None:
    """The process group of a killed child is killed before the restart, and does not delay it."""
    recorder = CallbackRecorder()
    program = "import os, signal; pid = os.fork()\nif pid: print(pid, flush=True)\nsignal.pause()"
    supervisor = supervisor_of(program, recorder)
    supervisor.start()
    await wait_until(lambda: bool(recorder.lines), "it has a child")
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await wait_until(lambda: len(recorder.lines) == 2, "it runs again")
    await wait_until(lambda: gone(int(recorder.lines[0])), "the first one's child is gone")
    await supervisor.stop(5)


async def test_a_child_runs_in_a_separate_session() -> None:
    """A child leads its session, so the terminal's Ctrl-C reaches only the supervisor."""
    recorder = CallbackRecorder()
    supervisor = supervisor_of("import os; print(os.getsid(0) == os.getpid(), flush=True); " + WAIT, recorder)
    supervisor.start()
    await wait_until(lambda: bool(recorder.lines), "it runs")
    assert recorder.lines == ["True"]
    await supervisor.stop(5)


async def test_an_endless_line_is_dropped() -> None:
    """A line longer than MAX_LINE_BYTES is dropped, and the next line is passed on."""
    recorder = CallbackRecorder()
    supervisor = supervisor_of(
        "import sys; sys.stdout.write('x' * 3_000_000 + '\\nafter\\n'); sys.stdout.flush(); " + WAIT, recorder
    )
    supervisor.start()
    await wait_until(lambda: "after" in recorder.lines, "the next line is there")
    await supervisor.stop(5)


async def test_a_program_that_cannot_be_started_is_reported() -> None:
    """If no process can be created, the cluster gives up with the error."""
    recorder = CallbackRecorder()
    supervisor = Supervisor(ChildSpec("child", [sys.executable], {"bad=name": "\0"}), recorder)
    supervisor.start()
    await wait_until(lambda: bool(recorder.given_up), "it is given up")
    await supervisor.stop(5)
