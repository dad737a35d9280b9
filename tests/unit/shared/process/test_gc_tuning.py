"""The garbage collector of a process that serves."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from shared.process.gc_tuning import collect_rarely


class Knot:
    """Something that refers to itself, so that only a collection frees it."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Knot.freed += 1


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Sets the collector back after the test."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_collections_are_rare_and_still_come() -> None:
    """A thousand requests' worth of objects starts none; garbage that refers to itself is freed in the end."""
    collect_rarely()
    before = [each["collections"] for each in gc.get_stats()]
    kept = [[] for _ in range(10_000)]  # type: list[list[int]]
    assert [each["collections"] for each in gc.get_stats()] == before
    assert len(kept) == 10_000
    Knot.freed = 0
    for _ in range(60_000):
        Knot()
    assert Knot.freed > 0
