"""Two lanes: what goes first, what is bounded apart, and what is counted."""

from __future__ import annotations

import pytest

from shared import dead_letters
from shared import consumer
from shared import producer
from shared.consumer import Allowance, Claimed
from shared.keys import BULK, INTERACTIVE
from shared.messages import Entry
from shared.connection import Queue
from tests.integration.queue.actors import Gateway, Worker, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

FREE = Allowance(entries=100, tokens=10**6, workers=1, held=0)


async def claim(worker: Worker, allowance: Allowance = FREE) -> Claimed:
    """Claims with every bound of its own."""
    return await consumer.claim(worker.link, worker.keys, worker.name, allowance)


def lanes_of(entries: tuple[Entry, ...]) -> tuple[int, int]:
    """Returns how many entries are of the interactive lane and of bulk."""
    bulk = sum(entry.ref.lane == BULK for entry in entries)
    return len(entries) - bulk, bulk


async def test_interactive_entries_go_before_bulk(gateway: Gateway, worker: Worker) -> None:
    """Those that came later too; bulk has what they leave of the bounds."""
    await gateway.add(*(request(lane=BULK, cost=10) for _ in range(10)))
    await gateway.add(*(request(cost=10) for _ in range(5)))
    first = await claim(worker, FREE._replace(entries=4))
    assert (lanes_of(first.entries), first.left) == ((4, 0), (1, 10))
    second = await claim(worker, FREE._replace(tokens=40))
    assert (lanes_of(second.entries), second.left) == ((1, 3), (0, 7))
    await worker.commit((*first.entries, *second.entries, *await worker.claim()))


async def test_bulk_has_bounds_of_its_own(gateway: Gateway, worker: Worker) -> None:
    """In entries and in tokens; what is interactive does not count for them."""
    await gateway.add(*(request(lane=BULK, cost=10) for _ in range(10)))
    await gateway.add(*(request(cost=10) for _ in range(5)))
    none = await claim(worker, FREE._replace(bulk_entries=0))
    assert (lanes_of(none.entries), none.left) == ((5, 0), (0, 10))
    few = await claim(worker, FREE._replace(bulk_entries=3))
    assert (lanes_of(few.entries), few.left) == ((0, 3), (0, 7))
    little = await claim(worker, FREE._replace(bulk_tokens=20))
    assert (lanes_of(little.entries), little.left) == ((0, 2), (0, 5))
    await worker.commit((*none.entries, *few.entries, *little.entries, *await worker.claim()))


async def test_what_bulk_is_owed_goes_first(gateway: Gateway, worker: Worker) -> None:
    """So many tokens of it, one entry at least, then the interactive ones, within the bounds of both."""
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
    """A worker without room for bulk lets it lie."""
    await gateway.add(request(lane=BULK))
    assert await consumer.await_entry(worker.link, worker.keys, worker.name, 1, 0.05) == ()
    await gateway.add(request())
    found = await consumer.await_entry(worker.link, worker.keys, worker.name, 1, 0.05)
    both = [*found, *await consumer.await_entry(worker.link, worker.keys, worker.name)]
    entries = [each for each in both if isinstance(each, Entry)]
    assert lanes_of(tuple(entries)) == (1, 1)
    await worker.commit(entries)


async def test_bulk_fills_half_of_the_queue(gateway: Gateway, worker: Worker) -> None:
    """The rest is for those who wait; these may fill all of it."""
    bulk = await gateway.submit(*(request(lane=BULK) for _ in range(6)), bound=10)
    assert [each.status for each in bulk.outcomes] == ["ok"] * 5 + ["full"]
    interactive = await gateway.submit(*(request() for _ in range(6)), bound=10)
    assert [each.status for each in interactive.outcomes] == ["ok"] * 5 + ["full"]
    await worker.commit(await worker.claim())


async def test_only_its_own_lane_makes_a_request_late(gateway: Gateway, worker: Worker) -> None:
    """What the others take is in the rate that its gateway goes by."""
    await gateway.add(request(lane=BULK, cost=1_000), request(cost=100))
    tries = [(INTERACTIVE, 109), (INTERACTIVE, 110), (BULK, 1_009), (BULK, 1_010)]
    reply = await gateway.submit(*(request(lane=lane, cost=10)._replace(most_tokens=most) for lane, most in tries))
    found = [(each.status, each.tokens) for each in reply.outcomes]
    assert found == [("slow", 100), ("ok", 0), ("slow", 1_000), ("ok", 0)]
    await worker.commit(await worker.claim())


@pytest.mark.parametrize(("there", "comes", "status"), [(INTERACTIVE, BULK, "slow"), (BULK, INTERACTIVE, "ok")])
async def test_an_empty_lane_is_idle_only_if_nothing_goes_before_it(
    gateway: Gateway, worker: Worker, there: int, comes: int, status: str
) -> None:
    """Bulk that cannot be in time beside interactive requests is refused, though it would be the first of its lane."""
    await gateway.add(request(lane=there, cost=100))
    reply = await gateway.submit(request(lane=comes, cost=10)._replace(most_tokens=9))
    assert [(each.status, each.tokens) for each in reply.outcomes] == [(status, 0)]
    await worker.commit(await worker.claim())


async def test_both_lanes_are_counted(gateway: Gateway, worker: Worker, lane: Lane, bulk_lane: Lane) -> None:
    """By submit, cancel and commit; and the pulse tells the entries of each."""
    _, *bulk = await gateway.add(request(n=2, cost=7), request(lane=BULK, n=3, cost=11, entries=3))
    assert (await lane.backlog(), await lane.bulk_tokens()) == ((11, 40), 33)
    assert (await producer.pulse(gateway.link, gateway.keys)).by_lane == (1, 3)
    assert await producer.cancel(gateway.link, gateway.keys, bulk[:1], ()) == 1
    assert (await lane.backlog(), await lane.bulk_tokens()) == ((8, 29), 22)
    assert (await lane.length(), await bulk_lane.length()) == (1, 2)
    await worker.commit(await worker.claim())
    assert (await lane.backlog(), await lane.bulk_tokens()) == ((0, 0), 0)


async def test_what_a_dead_worker_held_of_bulk_is_taken_over(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """As in the other lane; and it is handed back there."""
    await gateway.add(request(lane=BULK), request())
    held = await worker.claim()
    assert await worker.hand_back(held) == 2
    again = await other.reclaim(idle_ms=1_000)
    assert {entry.ref for entry in again} == {entry.ref for entry in held}
    await other.commit(again)


async def test_the_attempt_of_a_dead_worker_that_held_bulk_alone_counts(
    gateway: Gateway, worker: Worker, other: Worker
) -> None:
    """It owes nothing in the other lane, and still what it had begun is known; also to a second reclaim."""
    await gateway.add(request())
    await worker.commit(await worker.claim())  # so it has a name in both
    await gateway.add(*(request(lane=BULK) for _ in range(2)))
    held = await worker.claim()
    await worker.mark_begun(held)
    first, second = await other.reclaim(most=1), await other.reclaim(owner=worker.name)
    assert [entry.attempts for entry in (*first, *second)] == [1, 1]
    await other.commit((*first, *second))


async def test_a_reclaim_is_bounded_over_both_lanes(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Interactive entries first."""
    await gateway.add(*(request() for _ in range(3)), *(request(lane=BULK) for _ in range(3)))
    await worker.claim()
    some = await other.reclaim(most=4, owner=worker.name)
    assert lanes_of(some) == (3, 1)
    await other.commit((*some, *await other.reclaim(owner=worker.name)))


async def test_what_is_held_of_bulk_takes_no_share_of_the_other_lane(gateway: Gateway, worker: Worker) -> None:
    """With a second worker that has not come yet, an interactive entry is claimed all the same."""
    await gateway.add(*(request(lane=BULK) for _ in range(10)))
    held = await worker.claim()
    await gateway.add(request())
    found = await claim(worker, FREE._replace(workers=2, bulk_held=len(held)))
    assert lanes_of(found.entries) == (1, 0)
    await worker.commit((*held, *found.entries))


@pytest.mark.leaves_dead_letters
async def test_a_dead_letter_goes_back_into_its_lane(
    desk: Queue, gateway: Gateway, worker: Worker, lane: Lane, bulk_lane: Lane
) -> None:
    """And is counted there."""
    link = desk.link("dead")
    await gateway.add(request(lane=BULK, n=2, cost=9))
    await worker.bury(await worker.claim())
    (letter,) = await dead_letters.read(link, desk.keys, 10)
    assert letter.lane == "bulk"
    outcome, ref = await dead_letters.requeue(link, desk.keys, letter.letter_id, "again", 60_000)
    assert (outcome, None if ref is None else ref.lane) == ("ok", BULK)
    assert (await bulk_lane.length(), await lane.bulk_tokens()) == (1, 9)
    await worker.commit(await worker.claim())
    await dead_letters.purge_all(link, desk.keys)
