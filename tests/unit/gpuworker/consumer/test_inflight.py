"""The entries that a worker holds."""

from __future__ import annotations

import asyncio

from gpuworker.consumer.inflight import InFlightEntries, key_of
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
    assert (key_of(entry(5)), key_of(other)) == ("0/5-0", "1/5-0")


def test_counts_entries_until_they_are_removed() -> None:
    """Entries, tokens and inputs rise with an addition and fall with a removal; a second removal changes nothing."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1, cost=7), ("a",))
    in_flight.add(entry(2, cost=5, inputs=2), ("b", "c"))
    assert (in_flight.held_load(BULK), len(in_flight), "0/1-0" in in_flight) == (HeldLoad(2, 12, 3, 12), 2, True)
    in_flight.remove(["0/1-0", "0/9-0"])
    in_flight.remove(["0/1-0"])
    assert (in_flight.held_load(BULK), len(in_flight), in_flight.get("0/1-0")) == (HeldLoad(1, 5, 2, 5), 1, None)


def test_bulk_is_counted_apart() -> None:
    """For an interactive entry, the load of bulk does not count."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1, cost=7), ("a",))
    in_flight.add(Entry(Ref(BULK, b"5-0", 1, 100), 1, "r", 0, 0, "", "", b""), ("b",))
    assert (in_flight.held_load(INTERACTIVE), in_flight.held_load(BULK)) == (
        HeldLoad(1, 7, 1, 7),
        HeldLoad(2, 107, 2, 107),
    )
    in_flight.remove(["1/5-0"])
    assert in_flight.held_load(INTERACTIVE) == in_flight.held_load(BULK) == HeldLoad(1, 7, 1, 7)


def test_a_long_entry_counts_as_one_that_is_just_long() -> None:
    """So a few of them do not keep the worker from claiming the short ones behind them; removal takes off the same."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1, cost=8_192), ("a",))
    in_flight.max_counted_tokens = 512
    for number in (2, 3):
        in_flight.add(entry(number, cost=8_192), ("a",))
    assert in_flight.held_load(INTERACTIVE) == HeldLoad(3, 3 * 8_192, 3, 8_192 + 2 * 512)
    assert in_flight.long_tokens(64) == 3 * 8_192
    in_flight.remove(["0/1-0", "0/2-0", "0/3-0"])
    assert in_flight.held_load(INTERACTIVE) == HeldLoad(0, 0, 0, 0)


def test_an_entry_may_be_long_by_its_tokens_or_its_inputs() -> None:
    """As the policy has it: half of a batch by either. One that is answered is none."""
    in_flight = InFlightEntries()
    in_flight.max_counted_tokens = 512
    entries = [entry(1, cost=511), entry(2, cost=512), entry(3, cost=100, inputs=31), entry(4, cost=100, inputs=32)]
    held = [in_flight.add(each, ("a",)) for each in entries]
    assert in_flight.long_tokens(64) == 612
    held[1].answered = True
    assert in_flight.long_tokens(64) == 100


def test_a_long_entry_of_bulk_counts_in_full() -> None:
    """Short inputs of bulk do not go before long ones, so there is no reason to hold more work than the horizon."""
    in_flight = InFlightEntries()
    in_flight.max_counted_tokens = 512
    in_flight.add(Entry(Ref(BULK, b"5-0", 1, 8_192), 1, "r", 0, 0, "", "", b""), ("b",))
    assert in_flight.held_load(BULK) == HeldLoad(1, 8_192, 1, 8_192)
    assert in_flight.long_tokens(64) == 0


def test_removal_wakes_the_claimer() -> None:
    """The claimer waits for `capacity_freed`."""
    in_flight = InFlightEntries()
    assert not in_flight.capacity_freed.is_set()
    in_flight.remove([])
    assert in_flight.capacity_freed.is_set()


def test_running_entries_have_started_and_no_answer() -> None:
    """Unknown keys are ignored."""
    in_flight = InFlightEntries()
    entries = [in_flight.add(entry(number), ("x",)) for number in range(3)]
    in_flight.mark_started(["0/0-0", "0/1-0", "0/7-0"])
    assert [each.request_id for each in in_flight.running_entries()] == ["r0", "r1"]
    entries[0].answered = True
    in_flight.mark_started(["0/2-0"])
    assert [each.request_id for each in in_flight.running_entries()] == ["r1", "r2"]


def test_a_death_counts_an_attempt_for_started_entries_only() -> None:
    """Entries that waited, or have an answer, are not accused."""
    in_flight = InFlightEntries()
    started, answered, waiting = (in_flight.add(entry(number, attempts=1), ("x",)) for number in range(3))
    in_flight.mark_started([key_of(started.entry), key_of(answered.entry)])
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
    in_flight.add(entry(1), ())
    known = in_flight.add(entry(2), ("x",))
    in_flight.count_attempts()
    assert in_flight.unanswered() == [known]


def test_what_waits_is_withdrawn_once() -> None:
    """Entries that run keep running; a result of the others that is on its way is ignored."""
    in_flight = InFlightEntries()
    running, waiting, answered = (in_flight.add(entry(number), ("x",)) for number in range(3))
    in_flight.mark_started([key_of(running.entry)])
    answered.answered = True
    assert in_flight.withdraw_waiting() == [waiting.entry]
    assert in_flight.unanswered() == [running]
    assert in_flight.withdraw_waiting() == []


async def test_waits_until_empty_or_the_time_is_over() -> None:
    """A drain ends with the last removal, or without it at its timeout."""
    in_flight = InFlightEntries()
    assert await in_flight.wait_until_empty(0.0)
    in_flight.add(entry(1), ("x",))
    in_flight.add(entry(2), ("x",))
    assert not await in_flight.wait_until_empty(0.01)
    waiting = asyncio.create_task(in_flight.wait_until_empty(20.0))
    in_flight.remove(["0/1-0"])
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    in_flight.remove(["0/2-0"])
    assert await waiting


def test_a_paused_entry_is_neither_timed_nor_accused() -> None:
    """A bulk entry may wait for seconds after its first inputs; then it continues."""
    in_flight = InFlightEntries()
    for number in range(2):
        in_flight.add(entry(number), ("x",))
    in_flight.mark_started(["0/0-0", "0/1-0"])
    in_flight.mark_paused(["0/0-0", "0/7-0"])
    assert [each.request_id for each in in_flight.running_entries()] == ["r1"]
    in_flight.count_attempts()
    assert [each.entry.attempts for each in in_flight.entries()] == [0, 1]
    assert in_flight.oldest_start() is None
    in_flight.mark_started(["0/0-0"])
    assert in_flight.oldest_start() is not None


def test_reports_of_two_parts_may_be_out_of_order() -> None:
    """Two runners report one entry: it is timed, and accused, until the last part has paused."""
    in_flight = InFlightEntries()
    in_flight.add(entry(1), ("a", "b"))
    in_flight.mark_started(["0/1-0"])
    in_flight.mark_started(["0/1-0"])
    in_flight.mark_paused(["0/1-0"])
    assert len(in_flight.running_entries()) == 1
    in_flight.mark_paused(["0/1-0"])
    assert in_flight.running_entries() == []
    in_flight.mark_started(["0/1-0"])
    in_flight.count_attempts()
    [in_flight_entry] = in_flight.entries()
    assert (in_flight_entry.entry.attempts, in_flight_entry.num_running, in_flight.running_entries()) == (1, 0, [])


def test_only_the_last_run_of_an_entry_hung() -> None:
    """An entry whose next engine dies of something else did not hang; one that had not begun never did."""
    in_flight = InFlightEntries()
    hung = in_flight.add(entry(1), ("a",))
    in_flight.add(entry(2), ("b",))
    in_flight.mark_started([key_of(hung.entry)])
    assert hung.started_at is not None
    in_flight.mark_hung(hung.started_at + 7, 5.0)
    in_flight.count_attempts()
    [hang, none] = [each.hang for each in in_flight.entries()]
    assert hang is not None
    assert (round(hang.ran_s, 3), hang.limit_s, none) == (7, 5, None)
    in_flight.mark_started([key_of(hung.entry)])
    assert [each.hang for each in in_flight.entries()] == [None, None]
