"""Memory shared with an engine: data stays unchanged until it is freed, and the memory leaves nothing behind."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.ipc.shared_memory import SharedMemoryReader, SharedMemoryWriter, WorkerMemory, create_shared_memory

SIZE = 1 << 16


Ends = tuple[SharedMemoryWriter, SharedMemoryReader]


def open_ends(size: int = SIZE) -> Ends:
    """Returns both sides of a new memory."""
    descriptor = create_shared_memory(size)
    return SharedMemoryWriter(os.dup(descriptor)), SharedMemoryReader(descriptor)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Both sides of a small memory."""
    writer, reader = open_ends()
    yield writer, reader
    writer.close()
    reader.close()


@given(st.lists(st.tuples(st.integers(1, SIZE // 3), st.integers(0, 9)), max_size=60))
def test_data_stays_unchanged_until_it_is_freed(steps: list[tuple[int, int]]) -> None:
    """Pieces of any size may be freed in any order; the others are read back as they were written."""
    writer, reader = open_ends()
    data_at: dict[int, bytes] = {}
    for number, (size, freed) in enumerate(steps):
        data = bytes([number % 251 + 1]) * size
        at = writer.put(data)
        if at is not None:
            assert at not in data_at
            data_at[at] = data
        if data_at and freed < 5:
            gone = sorted(data_at)[freed % len(data_at)]
            writer.free(gone)
            del data_at[gone]
        assert all(reader.read(at, len(data)) == data for at, data in data_at.items())
    writer.close()
    reader.close()


def test_an_engine_sees_until_when_it_may_use_the_gpu(ends: Ends) -> None:
    """It sees each change at once, even while the memory is full of data."""
    writer, reader = ends
    assert reader.until() == 0
    writer.put(b"x" * SIZE)
    for until in (12.5, 1e9):
        writer.grant(until)
        assert reader.until() == until


def test_data_that_does_not_fit_is_refused(ends: Ends) -> None:
    """It fits when there is room again."""
    writer, _ = ends
    assert writer.put(b"x" * (SIZE + 1)) is None
    whole = writer.put(b"x" * SIZE)
    assert whole == 0
    assert writer.put(b"y") is None
    writer.free(whole)
    assert writer.put(b"y") == 0


def test_memory_returns_to_the_system_when_all_data_is_freed() -> None:
    """The file has no page of data any more."""
    descriptor = create_shared_memory(64 * 2**20)
    writer = SharedMemoryWriter(os.dup(descriptor))
    at = writer.put(b"x" * (32 * 2**20))
    assert at is not None
    assert os.fstat(descriptor).st_blocks * 512 >= 32 * 2**20
    writer.free(at)
    assert os.fstat(descriptor).st_blocks * 512 <= mmap.PAGESIZE  # the page that holds until when the engine may run
    writer.close()
    os.close(descriptor)


def test_a_closed_memory_leaves_nothing_behind() -> None:
    """There is no descriptor, no mapping and no name."""

    def count_resources() -> tuple[int, int, int]:
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        mappings = Path("/proc/self/maps").read_text().count("memfd:redbatch")
        return descriptors, mappings, len(list(Path("/dev/shm").iterdir()))  # noqa: S108 - only listed

    before = count_resources()
    for _ in range(20):
        memory = WorkerMemory(SIZE)
        engine_reader, engine_writer = (
            SharedMemoryReader(os.dup(memory.descriptors[0])),
            SharedMemoryWriter(os.dup(memory.descriptors[1])),
        )
        for sender, receiver in ((memory.writer, engine_reader), (engine_writer, memory.reader)):
            assert sender.put(b"x") == 0
            assert bytes(receiver.read(0, 1)) == b"x"
        memory.close()
        engine_reader.close()
        engine_writer.close()
    assert count_resources() == before
