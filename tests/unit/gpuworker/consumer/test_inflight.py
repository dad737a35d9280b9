"""What a worker has in its hands."""

from __future__ import annotations

import asyncio

from gpuworker.consumer.inflight import InFlightEntries, key_of
from gpuworker.policy.credits import Held
from shared.keys import BULK, INTERACTIVE
from shared.messages import Entry, Ref


def entry(number: int, cost: int = 10, attempts: int = 0) -> Entry:
    """Returns an entry of the first lane."""
    ref = Ref(0, f"{number}-0".encode(), 1, cost)
    return Entry(ref, 1, f"r{number}", 0, 10_000, "", "", b"", attempts)


def test_names_tell_lanes_apart() -> None:
    """Two lanes may hold the same stream id."""
    other = Entry(Ref(1, b"5-0", 1, 1), 1, "r", 0, 0, "", "", b"")
    assert (key_of(entry(5)), key_of(other)) == ("0/5-0", "1/5-0")


def test_counts_what_it_holds_until_it_is_released() -> None:
    """Entries and tokens rise with a take and fall with a release; a second release changes nothing."""
    in_flight = InFlightEntries()
    in_flight.take(entry(1, cost=7), ("a",))
    in_flight.take(entry(2, cost=5), ("b",))
    assert (in_flight.held(BULK), len(in_flight), "0/1-0" in in_flight) == (Held(2, 12), 2, True)
    in_flight.release(["0/1-0", "0/9-0"])
    in_flight.release(["0/1-0"])
    assert (in_flight.held(BULK), len(in_flight), in_flight.get("0/1-0")) == (Held(1, 5), 1, None)


def test_what_is_held_of_bulk_is_counted_apart() -> None:
    """An interactive entry finds the room that bulk has taken."""
    in_flight = InFlightEntries()
    in_flight.take(entry(1, cost=7), ("a",))
    in_flight.take(Entry(Ref(BULK, b"5-0", 1, 100), 1, "r", 0, 0, "", "", b""), ("b",))
    assert (in_flight.held(INTERACTIVE), in_flight.held(BULK)) == (Held(1, 7), Held(2, 107))
    in_flight.release(["1/5-0"])
    assert in_flight.held(INTERACTIVE) == in_flight.held(BULK) == Held(1, 7)


def test_release_wakes_whoever_waits_for_room() -> None:
    """The claimer sleeps on it."""
    in_flight = InFlightEntries()
    assert not in_flight.freed.is_set()
    in_flight.release([])
    assert in_flight.freed.is_set()


def test_begun_are_those_that_run_now() -> None:
    """What has begun and is answered is not owed any more, and unknown keys are passed over."""
    in_flight = InFlightEntries()
    holdings = [in_flight.take(entry(number), ("x",)) for number in range(3)]
    in_flight.begin(["0/0-0", "0/1-0", "0/7-0"])
    assert [each.request_id for each in in_flight.running()] == ["r0", "r1"]
    holdings[0].answered = True
    in_flight.begin(["0/2-0"])
    assert [each.request_id for each in in_flight.running()] == ["r1", "r2"]


def test_an_interrupted_run_is_an_attempt_of_the_begun_alone() -> None:
    """A dead engine counts for what it ran, not for what waited, and not for what is answered already."""
    in_flight = InFlightEntries()
    begun, answered, waiting = (in_flight.take(entry(number, attempts=1), ("x",)) for number in range(3))
    in_flight.begin([key_of(begun.entry), key_of(answered.entry)])
    answered.answered = True
    in_flight.interrupt()
    assert in_flight.unanswered() == [begun, waiting]
    assert [each.entry.attempts for each in in_flight.all()] == [2, 1, 1]
    in_flight.interrupt()
    assert in_flight.unanswered() == [begun, waiting]
    assert [each.entry.attempts for each in in_flight.all()] == [2, 1, 1]


def test_an_entry_on_its_way_to_others_is_not_run() -> None:
    """What has no inputs was not understood here and is about to be handed back: a new engine gets none of it."""
    in_flight = InFlightEntries()
    in_flight.take(entry(1), ())
    known = in_flight.take(entry(2), ("x",))
    in_flight.interrupt()
    assert in_flight.unanswered() == [known]


async def test_waits_until_the_hands_are_empty_or_the_time_is_over() -> None:
    """A drain ends with the last release, or without it when it takes too long."""
    in_flight = InFlightEntries()
    assert await in_flight.emptied(0.0)
    in_flight.take(entry(1), ("x",))
    in_flight.take(entry(2), ("x",))
    assert not await in_flight.emptied(0.01)
    waiting = asyncio.create_task(in_flight.emptied(20.0))
    in_flight.release(["0/1-0"])
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    in_flight.release(["0/2-0"])
    assert await waiting


def test_what_is_between_two_of_its_batches_is_neither_timed_nor_accused() -> None:
    """A bulk entry may wait for seconds after its first inputs; then it runs on."""
    in_flight = InFlightEntries()
    for number in range(2):
        in_flight.take(entry(number), ("x",))
    in_flight.begin(["0/0-0", "0/1-0"])
    in_flight.pause(["0/0-0", "0/7-0"])
    assert [each.request_id for each in in_flight.running()] == ["r1"]
    in_flight.interrupt()
    assert [each.entry.attempts for each in in_flight.all()] == [0, 1]
    assert in_flight.oldest_run() is None
    in_flight.begin(["0/0-0"])
    assert in_flight.oldest_run() is not None


def test_a_part_that_begins_before_the_pause_of_another_is_told_runs_on() -> None:
    """Two runners tell of one entry, and their words may cross: it is timed, and accused, until the last has paused."""
    in_flight = InFlightEntries()
    in_flight.take(entry(1), ("a", "b"))
    in_flight.begin(["0/1-0"])
    in_flight.begin(["0/1-0"])
    in_flight.pause(["0/1-0"])
    assert len(in_flight.running()) == 1
    in_flight.pause(["0/1-0"])
    assert in_flight.running() == []
    in_flight.begin(["0/1-0"])
    in_flight.interrupt()
    [holding] = in_flight.all()
    assert (holding.entry.attempts, holding.runs, in_flight.running()) == (1, 0, [])
