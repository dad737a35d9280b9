"""Supervised children, with real processes."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field

import psutil

from redbatch.up.cluster import ChildSpec
from redbatch.up.supervisor import Child
from tests.waiting import wait_until


@dataclass
class Record:
    """A cluster that writes down what its children tell it."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    ready: bool = False

    def line(self, _name: str, text: str) -> None:
        """Takes a line."""
        self.lines.append(text)

    def note(self, _name: str, text: str) -> None:
        """Takes a note."""
        self.notes.append(text)

    def give_up(self, _name: str, last_line: str) -> None:
        """Takes last words."""
        self.given_up.append(last_line)

    def ever_ready(self) -> bool:
        """Says what the test wants."""
        return self.ready


WAIT = "import signal; signal.pause()"


def child(program: str, record: Record) -> Child:
    """A child that runs some Python."""
    return Child(ChildSpec("child", [sys.executable, "-c", program], dict(os.environ)), record)


def gone(pid: int) -> bool:
    """Says whether a process has ended; one that nobody has waited for yet has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_lines_of_both_outputs_come_in_order() -> None:
    """Stdout and stderr are one stream of lines, the last one whole even without its end."""
    record = Record()
    program = "import os; os.write(1, b'one\\n'); os.write(2, b'two\\nthree'); "
    running = child(program + WAIT, record)
    running.start()
    await wait_until(lambda: len(record.lines) == 2, "both lines are there")
    await running.stop(5)
    assert record.lines == ["one", "two", "three"]


async def test_what_dies_starts_again() -> None:
    """A killed child has a successor at once, and the user reads why."""
    record = Record()
    running = child("print('up', flush=True); " + WAIT, record)
    running.start()
    await wait_until(lambda: len(record.lines) == 1, "it runs")
    first = running.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: len(record.lines) == 2, "it runs again")
    assert running.pid != first
    assert record.notes == ["was ended by SIGKILL; starting again now"]
    await running.stop(5)
    assert running.pid is None


async def test_a_child_that_cannot_run_is_given_up_with_its_last_words() -> None:
    """Exit code 2 before the cluster ever served: no second start."""
    record = Record()
    running = child("print('no such model'); raise SystemExit(2)", record)
    running.start()
    await wait_until(lambda: bool(record.given_up), "it is given up")
    assert record.given_up == ["no such model"]
    assert record.notes == []
    await running.stop(5)


async def test_stop_during_a_delay_is_at_once() -> None:
    """A child that keeps dying is not started again once it should stop."""
    record = Record(ready=True)
    running = child("raise SystemExit(1)", record)
    running.start()
    await wait_until(lambda: len(record.notes) >= 3, "it died three times")
    await running.stop(5)
    count = len(record.notes)
    assert count < 6
    assert running.pid is None


async def test_a_deaf_child_is_killed_with_its_children() -> None:
    """After the grace time nothing of its group is left."""
    record = Record()
    program = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); pid = os.fork()\n"
        "if pid: print(pid, flush=True)\n"
        "while True: signal.pause()"
    )
    running = child(program, record)
    running.start()
    await wait_until(lambda: bool(record.lines), "it ignores the signal")
    await running.stop(0.05)
    assert "killing it" in record.notes[0]
    await wait_until(lambda: gone(int(record.lines[0])), "its child is gone")


async def test_grandchildren_do_not_outlive_a_killed_child() -> None:
    """What a killed child leaves in its group goes before the next one starts, and holds nobody up."""
    record = Record()
    program = "import os, signal; pid = os.fork()\nif pid: print(pid, flush=True)\nsignal.pause()"
    running = child(program, record)
    running.start()
    await wait_until(lambda: bool(record.lines), "it has a child")
    assert running.pid is not None
    os.kill(running.pid, signal.SIGKILL)
    await wait_until(lambda: len(record.lines) == 2, "it runs again")
    await wait_until(lambda: gone(int(record.lines[0])), "the first one's child is gone")
    await running.stop(5)


async def test_a_child_has_a_session_of_its_own() -> None:
    """The terminal's Ctrl-C reaches the supervisor alone."""
    record = Record()
    running = child("import os; print(os.getsid(0) == os.getpid(), flush=True); " + WAIT, record)
    running.start()
    await wait_until(lambda: bool(record.lines), "it runs")
    assert record.lines == ["True"]
    await running.stop(5)


async def test_an_endless_line_is_dropped() -> None:
    """A line longer than any log's does not end the relay."""
    record = Record()
    running = child(
        "import sys; sys.stdout.write('x' * 3_000_000 + '\\nafter\\n'); sys.stdout.flush(); " + WAIT, record
    )
    running.start()
    await wait_until(lambda: "after" in record.lines, "the next line is there")
    await running.stop(5)


async def test_a_program_that_cannot_be_started_is_not_forgotten() -> None:
    """When not even a process can be made, the cluster learns why."""
    record = Record()
    running = Child(ChildSpec("child", [sys.executable], {"bad=name": "\0"}), record)
    running.start()
    await wait_until(lambda: bool(record.given_up), "it is given up")
    await running.stop(5)
