"""An engine's turns on a GPU, and its own watch over when they end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.tenure import OVER
from gpuworker.engine.turns import SharedTurn

SOON_S = 5.0


class Worker:
    """What a worker hears of turns."""

    def __init__(self, folder: Path | None = None) -> None:
        self.heard: list[str] = []
        self.until: list[float | None] = []
        lock = HostLock(str(folder) if folder else None)
        self.turn = SharedTurn(
            self.until.append, lock, lambda: self.heard.append("want"), lambda: self.heard.append("done")
        )


def test_a_turn_is_asked_for_and_given_back() -> None:
    """Once, however often it is taken; whoever takes it waits until it is granted."""
    worker = Worker()
    taking = threading.Thread(target=worker.turn.take)
    taking.start()
    time.sleep(0.05)
    assert (taking.is_alive(), worker.heard) == (True, ["want"])
    worker.turn.grant(7.0, "0.0")
    taking.join(SOON_S)
    worker.turn.take()
    worker.turn.extend(8.0)
    worker.turn.give()
    worker.turn.give()
    assert (worker.heard, worker.until) == (["want", "done"], [7.0, 8.0, None])


def test_what_comes_after_a_turn_extends_nothing() -> None:
    """The worker has renewed the lease while the engine gave it back."""
    worker = Worker()
    worker.turn.grant(7.0, "0.0")
    worker.turn.give()
    worker.turn.extend(8.0)
    assert worker.until == [7.0, None]


def test_a_slot_is_locked_among_the_processes_of_a_host(tmp_path: Path) -> None:
    """The second waits for the first, whatever Redis has said."""
    first, second = Worker(tmp_path), Worker(tmp_path)
    for each in (first, second):
        each.turn.grant(7.0, "0.0")
    lock = HostLock(str(tmp_path))
    lock.take("0.0")
    other = HostLock(str(tmp_path))
    waiting = threading.Thread(target=other.take, args=("0.0",))
    waiting.start()
    time.sleep(0.05)
    assert waiting.is_alive()
    HostLock(str(tmp_path)).take("1.0")  # another slot is free
    lock.give()
    waiting.join(SOON_S)
    assert not waiting.is_alive()
    other.give()


ENGINE = """
import sys, time
from gpuworker.engine.tenure import Tenure
tenure = Tenure()
{steps}
time.sleep(30)
"""


@pytest.mark.parametrize(
    "steps",
    [
        "tenure.set(time.monotonic() + 0.2)",
        "tenure.set(time.monotonic() + 30); time.sleep(0.1); tenure.set(time.monotonic() - 1)",
        "tenure.set(time.monotonic() + 0.2); sum(range(10**12))",
    ],
    ids=["its end comes", "it is over already", "it is busy"],
)
def test_an_engine_ends_itself_when_its_time_is_over(steps: str) -> None:
    """With an exit code of its own."""
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-P", "-c", ENGINE.format(steps=steps)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == OVER
    assert "the lease of the GPU is over" in ended.stderr
    assert time.monotonic() - began < SOON_S


def test_an_engine_whose_time_is_extended_lives() -> None:
    """And so does one that gives its turn back."""
    steps = """
for _ in range(5):
    tenure.set(time.monotonic() + 0.3)
    time.sleep(0.1)
tenure.set(None)
time.sleep(0.5)
sys.exit(0)
"""
    ended = subprocess.run([sys.executable, "-P", "-c", ENGINE.format(steps=steps)], check=False, timeout=30)
    assert ended.returncode == 0
