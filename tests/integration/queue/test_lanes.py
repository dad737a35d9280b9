"""Two lanes: their priority, their bounds, and their counters."""

from __future__ import annotations

import pytest

from shared import consumer, dead_letters, producer
from shared.consumer import ClaimBudget, ClaimResult
from shared.keys import BULK, INTERACTIVE
from shared.messages import Entry
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import Gateway, Worker, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

FREE = ClaimBudget(entries=100, tokens=10**6, workers=1, held=0)


async def claim(worker: Worker, budget: ClaimBudget = FREE) -> ClaimResult:
    """Claims with a budget, which a test sets in full."""
    return await consumer.claim(worker.connection, worker.keys, worker.name, budget)


def lanes_of(entries: tuple[Entry, ...]) -> tuple[int, int]:
    """Returns the number of entries in the interactive lane and in bulk."""
    bulk = sum(entry.ref.lane == BULK for entry in entries)
    return len(entries) - bulk, bulk


async def test_interactive_entries_go_before_bulk(gateway: Gateway, worker: Worker) -> None:
    """Interactive entries are claimed first, even later ones; bulk gets the rest of the budget."""
    await gateway.add(*(request(lane=BULK, cost=10) for _ in range(10)))
    await gateway.add(*(request(cost=10) for _ in range(5)))
    first = await claim(worker, FREE._replace(entries=4))
    assert (lanes_of(first.entries), first.remaining) == ((4, 0), (1, 10))
    second = await claim(worker, FREE._replace(tokens=40))
    assert (lanes_of(second.entries), second.remaining) == ((1, 3), (0, 7))
    await worker.commit((*first.entries, *second.entries, *await worker.claim()))


async def test_bulk_has_separate_bounds(gateway: Gateway, worker: Worker) -> None:
    """Bulk has separate bounds in entries and in tokens; interactive entries do not count for them."""
    await gateway.add(*(request(lane=BULK, cost=10) for _ in range(10)))
    await gateway.add(*(request(cost=10) for _ in range(5)))
    none = await claim(worker, FREE._replace(bulk_entries=0))
    assert (lanes_of(none.entries), none.remaining) == ((5, 0), (0, 10))
    few = await claim(worker, FREE._replace(bulk_entries=3))
    assert (lanes_of(few.entries), few.remaining) == ((0, 3), (0, 7))
    little = await claim(worker, FREE._replace(bulk_tokens=20))
    assert (lanes_of(little.entries), little.remaining) == ((0, 2), (0, 5))
    await worker.commit((*none.entries, *few.entries, *little.entries, *await worker.claim()))


async def test_what_bulk_is_owed_goes_first(gateway: Gateway, worker: Worker) -> None:
    """Tokens owed to bulk are claimed first, at least one entry, then interactive ones, within the bounds of both."""
    await gateway.add(*(request(lane=BULK, cost=10) for _ in range(10)))
    await gateway.add(*(request(cost=10) for _ in range(50)))
    some = await claim(worker, FREE._replace(entries=20, bulk_owed=30))
    assert lanes_of(some.entries) == (17, 3)
    one = await claim(worker, FREE._replace(entries=5, bulk_owed=1))
    assert lanes_of(one.entries) == (4, 1)
    bounded = await claim(worker, FREE._replace(entries=5, bulk_entries=0, bulk_owed=1))
    assert lanes_of(bounded.entries) == (5, 0)
    await worker.commit((*some.entries, *one.entries, *bounded.entries, *await worker.claim()))


async def test_a_wait_may_be_for_the_first_lane_alone(gateway: Gateway, worker: Worker) -> None:
    """A worker without room for bulk does not take bulk."""
    await gateway.add(request(lane=BULK))
    assert await consumer.await_entry(worker.connection, worker.keys, worker.name, 1, 0.05) == ()
    await gateway.add(request())
    found = await consumer.await_entry(worker.connection, worker.keys, worker.name, 1, 0.05)
    both = [*found, *await consumer.await_entry(worker.connection, worker.keys, worker.name)]
    entries = [each for each in both if isinstance(each, Entry)]
    assert lanes_of(tuple(entries)) == (1, 1)
    await worker.commit(entries)


async def test_bulk_fills_half_of_the_queue(gateway: Gateway, worker: Worker) -> None:
    """Bulk fills up to half of the queue; interactive requests may fill all of it."""
    bulk = await gateway.submit(*(request(lane=BULK) for _ in range(6)), bound=10)
    assert [each.status for each in bulk.outcomes] == ["ok"] * 5 + ["full"]
    interactive = await gateway.submit(*(request() for _ in range(6)), bound=10)
    assert [each.status for each in interactive.outcomes] == ["ok"] * 5 + ["full"]
    await worker.commit(await worker.claim())


async def test_only_its_own_lane_makes_a_request_late(gateway: Gateway, worker: Worker) -> None:
    """Only tokens of the request's lane make it slow: the gateway's rate accounts for the other lane."""
    await gateway.add(request(lane=BULK, cost=1_000), request(cost=100))
    tries = [(INTERACTIVE, 109), (INTERACTIVE, 110), (BULK, 1_009), (BULK, 1_010)]
    reply = await gateway.submit(*(request(lane=lane, cost=10)._replace(max_tokens=limit) for lane, limit in tries))
    found = [(each.status, each.tokens) for each in reply.outcomes]
    assert found == [("slow", 100), ("ok", 0), ("slow", 1_000), ("ok", 0)]
    await worker.commit(await worker.claim())


@pytest.mark.parametrize(("there", "comes", "status"), [(INTERACTIVE, BULK, "slow"), (BULK, INTERACTIVE, "ok")])
async def test_an_empty_lane_is_idle_only_if_nothing_goes_before_it(
    gateway: Gateway, worker: Worker, there: int, comes: int, status: str
) -> None:
    """Bulk that cannot be in time beside interactive requests is refused, even as the first entry of its lane."""
    await gateway.add(request(lane=there, cost=100))
    reply = await gateway.submit(request(lane=comes, cost=10)._replace(max_tokens=9))
    assert [(each.status, each.tokens) for each in reply.outcomes] == [(status, 0)]
    await worker.commit(await worker.claim())


async def test_both_lanes_are_counted(gateway: Gateway, worker: Worker, lane: Lane, bulk_lane: Lane) -> None:
    """Submit, cancel and commit count both lanes; the stats show the entries of each."""
    _, *bulk = await gateway.add(request(n=2, cost=7), request(lane=BULK, n=3, cost=11, entries=3))
    assert (await lane.backlog(), await lane.bulk_tokens()) == ((11, 40), 33)
    assert (await producer.queue_stats(gateway.connection, gateway.keys)).by_lane == (1, 3)
    assert await producer.cancel(gateway.connection, gateway.keys, bulk[:1], ()) == 1
    assert (await lane.backlog(), await lane.bulk_tokens()) == ((8, 29), 22)
    assert (await lane.length(), await bulk_lane.length()) == (1, 2)
    await worker.commit(await worker.claim())
    assert (await lane.backlog(), await lane.bulk_tokens()) == ((0, 0), 0)


async def test_what_a_dead_worker_held_of_bulk_is_taken_over(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Entries of bulk are handed back and reclaimed as those of the other lane are."""
    await gateway.add(request(lane=BULK), request())
    held = await worker.claim()
    assert await worker.hand_back(held) == 2
    again = await other.reclaim(idle_ms=1_000)
    assert {entry.ref for entry in again} == {entry.ref for entry in held}
    await other.commit(again)


async def test_the_attempt_of_a_dead_worker_that_held_bulk_alone_counts(
    gateway: Gateway, worker: Worker, other: Worker
) -> None:
    """Begun entries are known, also to a second reclaim, if their worker owes nothing in the other lane."""
    await gateway.add(request())
    await worker.commit(await worker.claim())  # so that it has a name in both lanes
    await gateway.add(*(request(lane=BULK) for _ in range(2)))
    held = await worker.claim()
    await worker.mark_begun(held)
    first, second = await other.reclaim(max_entries=1), await other.reclaim(owner=worker.name)
    assert [entry.attempts for entry in (*first, *second)] == [1, 1]
    await other.commit((*first, *second))


async def test_a_reclaim_is_bounded_over_both_lanes(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """A reclaim takes interactive entries first, and its bound covers both lanes."""
    await gateway.add(*(request() for _ in range(3)), *(request(lane=BULK) for _ in range(3)))
    await worker.claim()
    some = await other.reclaim(max_entries=4, owner=worker.name)
    assert lanes_of(some) == (3, 1)
    await other.commit((*some, *await other.reclaim(owner=worker.name)))


async def test_what_is_held_of_bulk_takes_no_share_of_the_other_lane(gateway: Gateway, worker: Worker) -> None:
    """With a second worker that has not claimed yet, an interactive entry is claimed nevertheless."""
    await gateway.add(*(request(lane=BULK) for _ in range(10)))
    held = await worker.claim()
    await gateway.add(request())
    found = await claim(worker, FREE._replace(workers=2, bulk_held=len(held)))
    assert lanes_of(found.entries) == (1, 0)
    await worker.commit((*held, *found.entries))


@pytest.mark.leaves_dead_letters
async def test_a_dead_letter_goes_back_into_its_lane(
    admin_queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane, bulk_lane: Lane
) -> None:
    """A requeued letter of bulk is added to bulk, and counted there."""
    connection = admin_queue.connection("dead")
    await gateway.add(request(lane=BULK, n=2, cost=9))
    await worker.give_up(await worker.claim())
    (letter,) = await dead_letters.read(connection, admin_queue.keys, 10)
    assert letter.lane == "bulk"
    outcome, ref = await dead_letters.requeue(connection, admin_queue.keys, letter.letter_id, "again", 60_000)
    assert (outcome, None if ref is None else ref.lane) == ("ok", BULK)
    assert (await bulk_lane.length(), await lane.bulk_tokens()) == (1, 9)
    await worker.commit(await worker.claim())
    await dead_letters.purge_all(connection, admin_queue.keys)
