"""The table in which an engine notes what it runs."""

from __future__ import annotations

import os
import signal
import time

from gpuworker.ipc.run_table import NUM_RESTING, NUM_SLOTS, RunTable, Slots


def test_the_other_process_sees_starts_and_ends() -> None:
    """Both map the same memory; the time is that of the start."""
    worker = RunTable()
    engine = RunTable(os.dup(worker.descriptor))
    before = time.monotonic()
    engine.begin([0, NUM_SLOTS - 1])
    started_at = worker.started_at(0)
    assert started_at is not None
    assert before <= started_at <= time.monotonic()
    assert worker.started_at(NUM_SLOTS - 1) == started_at
    assert worker.started_at(1) is None
    engine.end([0])
    assert (worker.started_at(0), worker.started_at(NUM_SLOTS - 1)) == (None, started_at)


def test_parts_that_overlap_are_one_run() -> None:
    """It goes on from the start of the first part to the end of the last one."""
    runs = RunTable()
    runs.begin([7])
    started_at = runs.started_at(7)
    runs.begin([7])
    runs.end([7])
    assert runs.started_at(7) == started_at
    runs.end([7])
    assert runs.started_at(7) is None


def test_what_a_killed_process_ran_is_still_known_until_it_is_cleared() -> None:
    """The memory outlives the engine."""
    worker = RunTable()
    pid = os.fork()
    if not pid:
        RunTable(os.dup(worker.descriptor)).begin([3])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert worker.started_at(3) is not None
    worker.clear()
    assert worker.started_at(3) is None


def test_no_two_entries_have_one_slot() -> None:
    """Whatever is freed, and in which order; a slot rests before an entry gets it again."""
    slots, held, freed_at, num_freed = Slots(), set[int](), dict[int, int](), 0
    for number in range(4 * NUM_RESTING):
        slot = slots.take()
        assert slot not in held
        assert slot < NUM_SLOTS
        assert num_freed - freed_at.pop(slot, num_freed - NUM_RESTING) >= NUM_RESTING
        if number % 4:
            freed_at[slot], num_freed = num_freed, num_freed + 1
            slots.free(slot)
        else:  # to the end
            held.add(slot)


def test_slots_that_rest_are_taken_when_there_are_no_others() -> None:
    """The table has room for all entries that a worker can hold."""
    slots = Slots()
    taken = [slots.take() for _ in range(NUM_SLOTS)]
    slots.free(taken[5])
    assert (len(set(taken)), slots.take()) == (NUM_SLOTS, taken[5])
