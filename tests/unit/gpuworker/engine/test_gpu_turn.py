"""An engine's turns on a GPU, and its own watch over its lease."""

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

from gpuworker.engine.gpu_turn import SharedTurn
from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import LEASE_EXPIRED, LeaseGuard
from gpuworker.ipc.messages import TurnEnded, TurnRequested, TurnStarted
from tests.waiting import wait_until

SOON_S = 20.0


class Worker:
    """Records the messages to a worker and the calls of a lease guard, in order."""

    def __init__(self) -> None:
        self.received: list[object] = []
        guard = cast("LeaseGuard", SimpleNamespace(begin=self._records("begin"), end=self._records("end")))
        self.turn = SharedTurn(guard, HostLock(None), self.received.append)

    def _records(self, name: str) -> Callable[[], None]:
        return lambda: self.received.append(name)


async def test_a_turn_is_requested_and_ended_once() -> None:
    """The first acquire waits for the grant; an acquire or release that changes nothing sends nothing."""
    worker = Worker()
    acquiring = threading.Thread(target=worker.turn.acquire)
    acquiring.start()
    await wait_until(lambda: worker.received == [TurnRequested()], "it is requested")
    assert acquiring.is_alive()
    worker.turn.grant("0.0")
    acquiring.join(SOON_S)
    assert not acquiring.is_alive()
    worker.turn.acquire()
    worker.turn.release()
    worker.turn.release()
    assert worker.received == [TurnRequested(), "begin", TurnStarted(), "end", TurnEnded()]


def test_a_slot_is_locked_among_the_processes_of_a_host(tmp_path: Path) -> None:
    """The second process waits for the first, independently of Redis."""
    lock = HostLock(str(tmp_path))
    lock.acquire("0.0")
    other = HostLock(str(tmp_path))
    waiting = threading.Thread(target=other.acquire, args=("0.0",))
    waiting.start()
    time.sleep(0.05)
    assert waiting.is_alive()
    HostLock(str(tmp_path)).acquire("1.0")  # another slot is free
    lock.release()
    waiting.join(SOON_S)
    assert not waiting.is_alive()
    other.release()


ENGINE = """
import sys, time
from gpuworker.engine.lease_guard import LeaseGuard
until = [time.monotonic() + {first_s}]
guard = LeaseGuard(lambda: until[0])
guard.begin()
{steps}
time.sleep(30)
"""


def engine(first_s: float, steps: str) -> tuple[int, str, float]:
    """Runs an engine whose lease expires after `first_s`; returns its exit code, its stderr, and its run time in s."""
    began = time.monotonic()
    code = ENGINE.format(first_s=first_s, steps=steps)
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=30)
    return ended.returncode, ended.stderr, time.monotonic() - began


@pytest.mark.parametrize("steps", ["", "while True: pass"], ids=["idle", "busy"])
def test_an_engine_ends_itself_when_its_lease_expires(steps: str) -> None:
    """It has a distinct exit code, whether it is idle or busy."""
    status, stderr, run_s = engine(0.2, steps)
    assert status == LEASE_EXPIRED
    assert "the GPU lease has expired" in stderr
    assert 0.2 <= run_s < SOON_S


@pytest.mark.parametrize(
    "steps",
    [
        "for _ in range(5): until[0] = time.monotonic() + 1.0; time.sleep(0.25)\nsys.exit(0)",
        "guard.end(); time.sleep(1.3); sys.exit(0)",
        "guard.end(); time.sleep(1.3); until[0] += 9; guard.begin(); time.sleep(0.3); sys.exit(0)",
    ],
    ids=["renewed", "given back", "taken again"],
)
def test_an_engine_lives_while_its_lease_lasts_or_it_does_not_use_the_gpu(steps: str) -> None:
    """A renewal counts, and an expired lease ends no engine that does not use the GPU."""
    status, stderr, _ = engine(1.0, steps)
    assert (status, stderr) == (0, "")
