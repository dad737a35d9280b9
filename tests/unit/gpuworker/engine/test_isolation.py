"""The quarantine: a suspect is alone where inputs may kill, and the others are not held up by each other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gpuworker.engine.isolation import Quarantine
from tests.waiting import wait_until

LONG_S = 10.0


class Visit:
    """Somebody who enters, in a thread of their own, and stays until told to leave."""

    def __init__(self, quarantine: Quarantine, *, alone: bool = False) -> None:
        self.inside = threading.Event()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._stay, args=(quarantine, alone), daemon=True)
        self._thread.start()

    def _stay(self, quarantine: Quarantine, alone: bool) -> None:
        with quarantine.entered(alone=alone):
            self.inside.set()
            assert self._leave.wait(LONG_S)

    def leave(self) -> None:
        """Leaves; returns when gone."""
        self._leave.set()
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()


def kept_out(visit: Visit) -> bool:
    """Whether somebody has to wait outside."""
    return not visit.inside.wait(0.05)


def waits(quarantine: Quarantine) -> Callable[[], bool]:
    """Returns whether somebody who must be alone stands outside."""
    return lambda: quarantine._waiting > 0


def test_others_are_side_by_side() -> None:
    """None of them waits for another."""
    quarantine = Quarantine()
    visits = [Visit(quarantine) for _ in range(3)]
    assert all(visit.inside.wait(LONG_S) for visit in visits)
    for visit in visits:
        visit.leave()


async def test_a_suspect_is_alone() -> None:
    """It waits until all have left; who comes after it waits for it, and then they are side by side."""
    quarantine = Quarantine()
    before = [Visit(quarantine) for _ in range(2)]
    assert all(visit.inside.wait(LONG_S) for visit in before)
    suspect = Visit(quarantine, alone=True)
    await wait_until(waits(quarantine), "the suspect waits")
    after = [Visit(quarantine) for _ in range(2)]
    before[0].leave()
    assert kept_out(suspect)
    assert all(map(kept_out, after))
    before[1].leave()
    assert suspect.inside.wait(LONG_S)
    assert all(map(kept_out, after))
    suspect.leave()
    assert all(visit.inside.wait(LONG_S) for visit in after)
    for visit in after:
        visit.leave()


def test_suspects_are_alone_one_after_another() -> None:
    """Each of them."""
    quarantine = Quarantine()
    first = Visit(quarantine, alone=True)
    assert first.inside.wait(LONG_S)
    second = Visit(quarantine, alone=True)
    assert kept_out(second)
    first.leave()
    assert second.inside.wait(LONG_S)
    second.leave()


def test_an_error_leaves_too() -> None:
    """Whatever happens in there, the next may enter."""
    quarantine = Quarantine()
    with pytest.raises(ZeroDivisionError), quarantine.entered(alone=True):
        _ = 1 / 0
    nxt = Visit(quarantine)
    assert nxt.inside.wait(LONG_S)
    nxt.leave()
