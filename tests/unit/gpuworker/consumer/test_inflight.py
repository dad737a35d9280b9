"""The entries that a worker holds."""

from __future__ import annotations

import asyncio
import os
import time

from gpuworker.consumer.inflight import InFlightEntries, key_of, shard_of
from gpuworker.ipc.run_table import RunTable
from gpuworker.policy.credits import HeldLoad
from shared.keys import BULK, INTERACTIVE
from shared.messages import Entry, Ref


def entry(number: int, cost: int = 10, attempts: int = 0, inputs: int = 1) -> Entry:
    """Returns an entry of the first lane."""
    ref = Ref(0, f"{number}-0".encode(), inputs, cost)
    return Entry(ref, 1, f"r{number}", 0, 10_000, "", "", b"", attempts)


def test_keys_differ_between_lanes() -> None:
    """Two lanes may hold the same stream id."""
    other = Entry(Ref(1, b"5-0", 1, 1), 1, "r", 0, 0, "", "", b"")
    assert (key_of(entry(5), 0), key_of(other, 0)) == ("0/0/5-0", "0/1/5-0")


def test_counts_entries_until_they_are_removed() -> None:
    """Entries, tokens and inputs rise with an addition and fall with a removal; a second removal changes nothing."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1, cost=7), 0, ("a",))
    in_flight.add(entry(2, cost=5, inputs=2), 0, ("b", "c"))
    assert (in_flight.held_load(BULK, 0), len(in_flight), "0/0/1-0" in in_flight) == (HeldLoad(2, 12, 3, 12), 2, True)
    in_flight.remove(["0/0/1-0", "0/0/9-0"])
    in_flight.remove(["0/0/1-0"])
    assert (in_flight.held_load(BULK, 0), len(in_flight), in_flight.get("0/0/1-0")) == (HeldLoad(1, 5, 2, 5), 1, None)


def test_bulk_is_counted_apart() -> None:
    """For an interactive entry, the load of bulk does not count."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1, cost=7), 0, ("a",))
    in_flight.add(Entry(Ref(BULK, b"5-0", 1, 100), 1, "r", 0, 0, "", "", b""), 0, ("b",))
    assert (in_flight.held_load(INTERACTIVE, 0), in_flight.held_load(BULK, 0)) == (
        HeldLoad(1, 7, 1, 7),
        HeldLoad(2, 107, 2, 107),
    )
    in_flight.remove(["0/1/5-0"])
    assert in_flight.held_load(INTERACTIVE, 0) == in_flight.held_load(BULK, 0) == HeldLoad(1, 7, 1, 7)


def test_a_long_entry_counts_as_one_that_is_just_long() -> None:
    """So a few of them do not keep the worker from claiming the short ones behind them; removal takes off the same."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1, cost=8_192), 0, ("a",))
    in_flight.max_counted_tokens = 512
    for number in (2, 3):
        in_flight.add(entry(number, cost=8_192), 0, ("a",))
    assert in_flight.held_load(INTERACTIVE, 0) == HeldLoad(3, 3 * 8_192, 3, 8_192 + 2 * 512)
    assert in_flight.long_tokens(64, 0) == 3 * 8_192
    in_flight.remove(["0/0/1-0", "0/0/2-0", "0/0/3-0"])
    assert in_flight.held_load(INTERACTIVE, 0) == HeldLoad(0, 0, 0, 0)


def test_an_entry_may_be_long_by_its_tokens_or_its_inputs() -> None:
    """As the policy has it: half of a batch by either. One that is answered is none."""
    in_flight = InFlightEntries()
    in_flight.max_counted_tokens = 512
    entries = [entry(1, cost=511), entry(2, cost=512), entry(3, cost=100, inputs=31), entry(4, cost=100, inputs=32)]
    held = [in_flight.add(each, 0, ("a",)) for each in entries]
    assert in_flight.long_tokens(64, 0) == 612
    held[1].answered = True
    assert in_flight.long_tokens(64, 0) == 100


def test_a_long_entry_of_bulk_counts_in_full() -> None:
    """Short inputs of bulk do not go before long ones, so there is no reason to hold more work than the horizon."""
    in_flight = InFlightEntries()
    in_flight.max_counted_tokens = 512
    in_flight.add(Entry(Ref(BULK, b"5-0", 1, 8_192), 1, "r", 0, 0, "", "", b""), 0, ("b",))
    assert in_flight.held_load(BULK, 0) == HeldLoad(1, 8_192, 1, 8_192)
    assert in_flight.long_tokens(64, 0) == 0


def test_a_watcher_hears_of_the_first_entry_of_its_shard_and_of_the_last() -> None:
    """Not of those in between, nor of those of another shard."""
    in_flight, heard = InFlightEntries(2), list[str]()
    in_flight.watch(0, lambda: heard.append("first"), lambda: heard.append("empty"))
    keys = [in_flight.add(entry(number), 0, ("a",)).key for number in (1, 2)]
    other = in_flight.add(entry(3), 1, ("a",)).key
    in_flight.remove(keys[:1])
    assert heard == ["first"]
    in_flight.remove(keys[1:])
    assert heard == ["first", "empty"]
    in_flight.remove([other, *keys])
    assert heard == ["first", "empty"]
    in_flight.add(entry(4), 0, ("a",))
    assert heard == ["first", "empty", "first"]


def test_removal_wakes_the_claimer() -> None:
    """The claimer waits for `capacity_freed`."""
    in_flight = InFlightEntries()
    assert not in_flight.capacity_freed[0].is_set()
    in_flight.remove([])
    assert in_flight.capacity_freed[0].is_set()


def test_running_entries_have_started_and_no_answer() -> None:
    """Each has the time of its start."""
    in_flight, before = InFlightEntries(), time.monotonic()
    entries = [in_flight.add(entry(number), 0, ("x",)) for number in range(3)]
    in_flight.runs.begin([entries[0].slot, entries[1].slot])
    assert [each for each, _ in in_flight.running()] == entries[:2]
    assert all(before <= started_at <= time.monotonic() for _, started_at in in_flight.running())
    entries[0].answered = True
    in_flight.runs.begin([entries[2].slot])
    assert [each for each, _ in in_flight.running()] == entries[1:]


def test_a_death_counts_an_attempt_for_started_entries_only() -> None:
    """Entries that waited, or have an answer, are not accused."""
    in_flight = InFlightEntries()
    started, answered, waiting = (in_flight.add(entry(number, attempts=1), 0, ("x",)) for number in range(3))
    in_flight.runs.begin([started.slot, answered.slot])
    answered.answered = True
    in_flight.count_attempts()
    assert in_flight.unanswered() == [started, waiting]
    assert [each.entry.attempts for each in in_flight.entries()] == [2, 1, 1]
    in_flight.count_attempts()
    assert in_flight.unanswered() == [started, waiting]
    assert [each.entry.attempts for each in in_flight.entries()] == [2, 1, 1]


def test_an_entry_that_is_handed_back_is_not_run() -> None:
    """An entry without inputs was not understood and is handed back: a new engine does not get it."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1), 0, ())
    known = in_flight.add(entry(2), 0, ("x",))
    in_flight.count_attempts()
    assert in_flight.unanswered() == [known]


def test_what_waits_is_withdrawn_once() -> None:
    """Entries that run keep running; a result of the others that is on its way is ignored."""
    in_flight = InFlightEntries()
    running, waiting, answered = (in_flight.add(entry(number), 0, ("x",)) for number in range(3))
    in_flight.runs.begin([running.slot])
    answered.answered = True
    assert in_flight.withdraw_waiting() == [waiting]
    assert in_flight.unanswered() == [running]
    assert in_flight.withdraw_waiting() == []


async def test_waits_until_empty_or_the_time_is_over() -> None:
    """A drain ends with the last removal, or without it at its timeout."""
    in_flight = InFlightEntries()
    assert await in_flight.wait_until_empty(0.0)
    in_flight.add(entry(1), 0, ("x",))
    in_flight.add(entry(2), 0, ("x",))
    assert not await in_flight.wait_until_empty(0.01)
    waiting = asyncio.create_task(in_flight.wait_until_empty(20.0))
    in_flight.remove(["0/0/1-0"])
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    in_flight.remove(["0/0/2-0"])
    assert await waiting


def test_an_entry_between_two_parts_is_neither_timed_nor_accused() -> None:
    """A bulk entry may wait for seconds after its first inputs; then it continues."""
    in_flight = InFlightEntries()
    paused, running = (in_flight.add(entry(number), 0, ("x",)) for number in range(2))
    in_flight.runs.begin([paused.slot, running.slot])
    in_flight.runs.end([paused.slot])
    assert [each for each, _ in in_flight.running()] == [running]
    in_flight.count_attempts()
    assert [each.entry.attempts for each in in_flight.entries()] == [0, 1]
    assert in_flight.running() == []


def test_starts_are_forgotten_with_an_engine_that_had_to_end() -> None:
    """It accuses no entry."""
    in_flight = InFlightEntries()
    in_flight.runs.begin([in_flight.add(entry(1), 0, ("x",)).slot])
    in_flight.clear_runs()
    in_flight.count_attempts()
    assert [each.entry.attempts for each in in_flight.entries()] == [0]


def test_only_the_last_run_of_an_entry_hung() -> None:
    """An entry whose next engine dies of something else did not hang; one that had not begun never did."""
    in_flight = InFlightEntries()
    hung, waiting = in_flight.add(entry(1), 0, ("a",)), in_flight.add(entry(2), 0, ("b",))
    in_flight.runs.begin([hung.slot])
    started_at = in_flight.started_at(hung) or 0.0
    in_flight.mark_hung(started_at + 7, 5.0)
    in_flight.count_attempts()
    assert hung.hang is not None
    assert (round(hung.hang.ran_s, 3), hung.hang.limit_s, waiting.hang) == (7, 5, None)
    RunTable(os.dup(in_flight.runs.descriptor)).begin([hung.slot])  # the next engine
    in_flight.count_attempts()
    assert hung.entry.attempts == 2
    assert [each.hang for each in in_flight.entries()] == [None, None]


def test_equal_ids_of_two_shards_are_two_entries() -> None:
    """Two Redis count their streams by their own clocks."""
    in_flight = InFlightEntries(2)
    first, second = (in_flight.add(entry(5), shard, ("x",)) for shard in (0, 1))
    assert (len(in_flight), first.key != second.key) == (2, True)
    assert [shard_of(each.key) for each in (first, second)] == [0, 1]
    assert (in_flight.entries(0), in_flight.entries(1)) == ([first], [second])
    in_flight.runs.begin([second.slot])
    assert [[each for each, _ in in_flight.running(shard)] for shard in (0, 1)] == [[], [second]]
    in_flight.remove([first.key])
    assert (in_flight.entries(), in_flight.num_of(0), in_flight.num_of(1)) == ([second], 0, 1)
    assert in_flight.num_entries(1, INTERACTIVE) == 1


def test_answers_that_wait_for_another_redis_take_no_credit() -> None:
    """It may be away for long. For claims from its own shard they count, or a worker would hold any number of them."""
    in_flight = InFlightEntries(2)
    stuck, running = in_flight.add(entry(1, cost=7), 0, ("x",)), in_flight.add(entry(2, cost=5), 0, ("x",))
    for _ in range(2):
        in_flight.mark_answered(stuck)
    assert in_flight.held_load(BULK, 0) == HeldLoad(2, 12, 2, 12)
    assert in_flight.held_load(BULK, 1) == HeldLoad(1, 5, 1, 5)
    assert [in_flight.num_held(shard) for shard in (0, 1)] == [2, 1]
    in_flight.remove([stuck.key])
    assert in_flight.held_load(BULK, 0) == in_flight.held_load(BULK, 1) == HeldLoad(1, 5, 1, 5)
    in_flight.mark_answered(running)
    assert in_flight.held_load(INTERACTIVE, 1) == HeldLoad(0, 0, 0, 0)


def test_each_shard_has_its_part_of_long_tokens() -> None:
    """Each gateway adds up what workers report of one shard."""
    in_flight = InFlightEntries(2)
    in_flight.max_counted_tokens = 512
    in_flight.add(entry(1, cost=8_192), 1, ("a",))
    assert [in_flight.long_tokens(64, shard) for shard in (0, 1)] == [0, 8_192]


def test_a_removal_wakes_the_claimers_of_all_shards() -> None:
    """The credit is common."""
    in_flight = InFlightEntries(2)
    in_flight.remove([in_flight.add(entry(1), 1, ("x",)).key])
    assert [event.is_set() for event in in_flight.capacity_freed] == [True, True]
