"""The isolation lock: a suspect holds it alone, and other inputs share it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gpuworker.engine.suspect_isolation import IsolationLock
from tests.waiting import wait_until

LONG_S = 10.0


class Visit:
    """A thread that enters the lock and stays until `leave` is called."""

    def __init__(self, lock: IsolationLock, *, isolated: bool = False) -> None:
        self.inside = threading.Event()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._stay, args=(lock, isolated), daemon=True)
        self._thread.start()

    def _stay(self, lock: IsolationLock, isolated: bool) -> None:
        with lock.enter(isolated=isolated):
            self.inside.set()
            assert self._leave.wait(LONG_S)

    def leave(self) -> None:
        """Leaves the lock; returns when the thread has ended."""
        self._leave.set()
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()


def is_outside(visit: Visit) -> bool:
    """Returns whether a visit has to wait outside."""
    return not visit.inside.wait(0.05)


def suspect_waits(lock: IsolationLock) -> Callable[[], bool]:
    """Returns a condition: a visit that must be alone waits outside."""
    return lambda: lock._num_isolated_waiting > 0


def test_inputs_that_are_no_suspects_share_the_lock() -> None:
    """None of them waits for another."""
    lock = IsolationLock()
    visits = [Visit(lock) for _ in range(3)]
    assert all(visit.inside.wait(LONG_S) for visit in visits)
    for visit in visits:
        visit.leave()


async def test_a_suspect_is_alone() -> None:
    """It waits until all others have left; those that come after it wait for it, and then share the lock."""
    lock = IsolationLock()
    before = [Visit(lock) for _ in range(2)]
    assert all(visit.inside.wait(LONG_S) for visit in before)
    suspect = Visit(lock, isolated=True)
    await wait_until(suspect_waits(lock), "the suspect waits")
    after = [Visit(lock) for _ in range(2)]
    before[0].leave()
    assert is_outside(suspect)
    assert all(map(is_outside, after))
    before[1].leave()
    assert suspect.inside.wait(LONG_S)
    assert all(map(is_outside, after))
    suspect.leave()
    assert all(visit.inside.wait(LONG_S) for visit in after)
    for visit in after:
        visit.leave()


def test_suspects_are_alone_one_after_another() -> None:
    """The second suspect waits for the first."""
    lock = IsolationLock()
    first = Visit(lock, isolated=True)
    assert first.inside.wait(LONG_S)
    second = Visit(lock, isolated=True)
    assert is_outside(second)
    first.leave()
    assert second.inside.wait(LONG_S)
    second.leave()


def test_an_error_releases_the_lock() -> None:
    """The next may enter after any error inside."""
    lock = IsolationLock()
    with pytest.raises(ZeroDivisionError), lock.enter(isolated=True):
        _ = 1 / 0
    nxt = Visit(lock)
    assert nxt.inside.wait(LONG_S)
    nxt.leave()
