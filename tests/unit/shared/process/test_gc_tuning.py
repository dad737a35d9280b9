"""The garbage collector of a process that serves."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from shared.process.gc_tuning import collect_rarely


class Cycle:
    """An object that refers to itself, so that only a collection frees it."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Cycle.freed += 1


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Restores the thresholds after the test. What is frozen stays so, as after the collection of the tests."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_collections_are_rare_and_still_come() -> None:
    """The objects of a thousand requests start no collection; reference cycles are freed eventually."""
    collect_rarely()
    before = [each["collections"] for each in gc.get_stats()]
    objects = [[] for _ in range(10_000)]  # type: list[list[int]]
    assert [each["collections"] for each in gc.get_stats()] == before
    assert len(objects) == 10_000
    Cycle.freed = 0
    for _ in range(60_000):
        Cycle()
    assert Cycle.freed > 0
