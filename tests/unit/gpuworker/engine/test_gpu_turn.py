"""An engine's turns on a GPU, and its own watch over when they end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import OVER, Tenure
from gpuworker.engine.gpu_turn import SharedTurn

SOON_S = 5.0


class Worker:
    """What a worker and an engine's watch hear of turns."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        watch = cast("Tenure", SimpleNamespace(begin=self._hears("begin"), end=self._hears("end")))
        self.turn = SharedTurn(watch, HostLock(None), self.heard.append)

    def _hears(self, what: str) -> Callable[[], None]:
        return lambda: self.heard.append(what)


def test_a_turn_is_asked_for_and_given_back() -> None:
    """Once, however often it is taken; whoever takes it waits until it is granted."""
    worker = Worker()
    taking = threading.Thread(target=worker.turn.take)
    taking.start()
    time.sleep(0.05)
    assert (taking.is_alive(), worker.heard) == (True, ["want"])
    worker.turn.grant("0.0")
    taking.join(SOON_S)
    assert not taking.is_alive()
    worker.turn.take()
    worker.turn.give()
    worker.turn.give()
    assert worker.heard == ["want", "begin", "has", "end", "done"]


def test_a_slot_is_locked_among_the_processes_of_a_host(tmp_path: Path) -> None:
    """The second waits for the first, whatever Redis has said."""
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
from gpuworker.engine.lease_guard import Tenure
until = [time.monotonic() + {first_s}]
tenure = Tenure(lambda: until[0])
tenure.begin()
{steps}
time.sleep(30)
"""


def engine(first_s: float, steps: str) -> tuple[int, str, float]:
    """Runs an engine whose time is over so soon; returns its exit code, what it said, and how long it took, in s."""
    began = time.monotonic()
    code = ENGINE.format(first_s=first_s, steps=steps)
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=30)
    return ended.returncode, ended.stderr, time.monotonic() - began


@pytest.mark.parametrize("steps", ["", "while True: pass"], ids=["idle", "busy"])
def test_an_engine_ends_itself_when_its_time_is_over(steps: str) -> None:
    """With an exit code of its own, whatever it does."""
    status, said, took_s = engine(0.2, steps)
    assert status == OVER
    assert "the lease of the GPU is over" in said
    assert 0.2 <= took_s < SOON_S


@pytest.mark.parametrize(
    "steps",
    [
        "for _ in range(5): until[0] = time.monotonic() + 0.3; time.sleep(0.1)\nsys.exit(0)",
        "tenure.end(); time.sleep(0.6); sys.exit(0)",
        "tenure.end(); time.sleep(0.6); until[0] += 9; tenure.begin(); time.sleep(0.3); sys.exit(0)",
    ],
    ids=["renewed", "given back", "taken again"],
)
def test_an_engine_whose_time_is_not_over_lives(steps: str) -> None:
    """It may be renewed, and nothing ends it while it does not use the GPU."""
    status, said, _ = engine(0.3, steps)
    assert (status, said) == (0, "")
