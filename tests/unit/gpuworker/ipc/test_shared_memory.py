"""Memory shared with an engine: what is put there stays as it is until it has been read, and nothing stays behind."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.ipc.shared_memory import Arena, Window

SIZE = 1 << 16


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A small one."""
    arena = Arena(SIZE)
    yield arena
    arena.close()


@given(st.lists(st.tuples(st.integers(1, SIZE // 3), st.integers(0, 9)), max_size=60))
def test_what_is_put_stays_until_it_is_freed(steps: list[tuple[int, int]]) -> None:
    """Pieces of any size, freed in any order: each reads back as it was, whatever was put and freed meanwhile."""
    arena = Arena(SIZE)
    window = Window(os.dup(arena.descriptor))
    there: dict[int, bytes] = {}
    for number, (size, freed) in enumerate(steps):
        data = bytes([number % 251 + 1]) * size
        at = arena.put(data)
        if at is not None:
            assert at not in there
            there[at] = data
        if there and freed < 5:
            gone = sorted(there)[freed % len(there)]
            arena.free(gone)
            del there[gone]
        assert all(window.read(at, len(data)) == data for at, data in there.items())
    arena.close()


def test_an_engine_sees_until_when_it_may_run(arena: Arena) -> None:
    """At once, and whatever else stands there."""
    window = Window(os.dup(arena.descriptor))
    assert window.until() == 0
    arena.put(b"x" * SIZE)
    for until in (12.5, 1e9):
        arena.grant(until)
        assert window.until() == until


def test_what_does_not_fit_is_refused(arena: Arena) -> None:
    """It goes another way; when there is room again it fits."""
    assert arena.put(b"x" * (SIZE + 1)) is None
    whole = arena.put(b"x" * SIZE)
    assert whole == 0
    assert arena.put(b"y") is None
    arena.free(whole)
    assert arena.put(b"y") == 0


def test_memory_goes_back_when_all_is_read() -> None:
    """The file has no page any more."""
    arena = Arena(64 * 2**20)
    at = arena.put(b"x" * (32 * 2**20))
    assert at is not None
    assert os.fstat(arena.descriptor).st_blocks * 512 >= 32 * 2**20
    arena.free(at)
    assert os.fstat(arena.descriptor).st_blocks * 512 <= mmap.PAGESIZE  # the one that says until when
    arena.close()


def test_nothing_is_left_of_it() -> None:
    """No descriptor, no mapping, no name."""

    def seen() -> tuple[int, int, int]:
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        mappings = Path("/proc/self/maps").read_text().count("memfd:redbatch")
        return descriptors, mappings, len(list(Path("/dev/shm").iterdir()))  # noqa: S108 - looked at, not used

    before = seen()
    for _ in range(20):
        arena = Arena(SIZE)
        window = Window(os.dup(arena.descriptor))
        arena.put(b"x")
        arena.close()
        del window
    assert seen() == before
