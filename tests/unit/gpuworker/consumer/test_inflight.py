"""What a worker has in its hands."""

from __future__ import annotations

import asyncio

from gpuworker.policy.credits import Held
from gpuworker.consumer.inflight import Hands, key_of
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
    hands = Hands()
    hands.take(entry(1, cost=7), ("a",))
    hands.take(entry(2, cost=5), ("b",))
    assert (hands.held(BULK), len(hands), "0/1-0" in hands) == (Held(2, 12), 2, True)
    hands.release(["0/1-0", "0/9-0"])
    hands.release(["0/1-0"])
    assert (hands.held(BULK), len(hands), hands.get("0/1-0")) == (Held(1, 5), 1, None)


def test_what_is_held_of_bulk_is_counted_apart() -> None:
    """An interactive entry finds the room that bulk has taken."""
    hands = Hands()
    hands.take(entry(1, cost=7), ("a",))
    hands.take(Entry(Ref(BULK, b"5-0", 1, 100), 1, "r", 0, 0, "", "", b""), ("b",))
    assert (hands.held(INTERACTIVE), hands.held(BULK)) == (Held(1, 7), Held(2, 107))
    hands.release(["1/5-0"])
    assert hands.held(INTERACTIVE) == hands.held(BULK) == Held(1, 7)


def test_release_wakes_whoever_waits_for_room() -> None:
    """The claimer sleeps on it."""
    hands = Hands()
    assert not hands.freed.is_set()
    hands.release([])
    assert hands.freed.is_set()


def test_begun_are_those_that_run_now() -> None:
    """What has begun and is answered is not owed any more, and unknown keys are passed over."""
    hands = Hands()
    holdings = [hands.take(entry(number), ("x",)) for number in range(3)]
    hands.begin(["0/0-0", "0/1-0", "0/7-0"])
    assert [each.request_id for each in hands.running()] == ["r0", "r1"]
    holdings[0].answered = True
    hands.begin(["0/2-0"])
    assert [each.request_id for each in hands.running()] == ["r1", "r2"]


def test_an_interrupted_run_is_an_attempt_of_the_begun_alone() -> None:
    """A dead engine counts for what it ran, not for what waited, and not for what is answered already."""
    hands = Hands()
    begun, answered, waiting = (hands.take(entry(number, attempts=1), ("x",)) for number in range(3))
    hands.begin([key_of(begun.entry), key_of(answered.entry)])
    answered.answered = True
    hands.interrupt()
    assert hands.unanswered() == [begun, waiting]
    assert [each.entry.attempts for each in hands.all()] == [2, 1, 1]
    hands.interrupt()
    assert hands.unanswered() == [begun, waiting]
    assert [each.entry.attempts for each in hands.all()] == [2, 1, 1]


def test_an_entry_on_its_way_to_others_is_not_run() -> None:
    """What has no inputs was not understood here and is about to be handed back: a new engine gets none of it."""
    hands = Hands()
    hands.take(entry(1), ())
    known = hands.take(entry(2), ("x",))
    hands.interrupt()
    assert hands.unanswered() == [known]


async def test_waits_until_the_hands_are_empty_or_the_time_is_over() -> None:
    """A drain ends with the last release, or without it when it takes too long."""
    hands = Hands()
    assert await hands.emptied(0.0)
    hands.take(entry(1), ("x",))
    hands.take(entry(2), ("x",))
    assert not await hands.emptied(0.01)
    waiting = asyncio.create_task(hands.emptied(20.0))
    hands.release(["0/1-0"])
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    hands.release(["0/2-0"])
    assert await waiting


def test_what_is_between_two_of_its_batches_is_neither_timed_nor_accused() -> None:
    """A bulk entry may wait for seconds after its first inputs; then it runs on."""
    hands = Hands()
    for number in range(2):
        hands.take(entry(number), ("x",))
    hands.begin(["0/0-0", "0/1-0"])
    hands.pause(["0/0-0", "0/7-0"])
    assert [each.request_id for each in hands.running()] == ["r1"]
    hands.interrupt()
    assert [each.entry.attempts for each in hands.all()] == [0, 1]
    assert hands.oldest_run() is None
    hands.begin(["0/0-0"])
    assert hands.oldest_run() is not None


def test_a_part_that_begins_before_the_pause_of_another_is_told_runs_on() -> None:
    """Two runners tell of one entry, and their words may cross: it is timed, and accused, until the last has paused."""
    hands = Hands()
    hands.take(entry(1), ("a", "b"))
    hands.begin(["0/1-0"])
    hands.begin(["0/1-0"])
    hands.pause(["0/1-0"])
    assert len(hands.running()) == 1
    hands.pause(["0/1-0"])
    assert hands.running() == []
    hands.begin(["0/1-0"])
    hands.interrupt()
    [holding] = hands.all()
    assert (holding.entry.attempts, holding.runs, hands.running()) == (1, 0, [])
