"""Renew and reclaim: which worker owns an entry, which has lost it, and how often it was tried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio

from shared import consumer, producer
from shared.keys import BULK, GROUP, RELEASED, Keys
from shared.messages import Entry
from shared.queue_connections import QueueConnections
from shared.redis_errors import GroupMissingError
from tests.integration.queue.actors import Gateway, Worker, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

AN_HOUR_MS = 3_600_000


async def make_idle(lane: Lane, worker: Worker, entries: Sequence[Entry]) -> None:
    """Makes entries that a worker holds as idle as if it had not renewed them for an hour."""
    ids: list[Any] = [entry.ref.entry_id for entry in entries]
    await lane.client.xclaim(lane.name, GROUP, worker.name, 0, ids, idle=AN_HOUR_MS, retrycount=1, justid=True)


async def test_only_the_owner_renews(gateway: Gateway, worker: Worker, other: Worker, lane: Lane) -> None:
    """A worker learns which entries it no longer owns, and renewing does not take them back."""
    refs = await gateway.add(*(request() for _ in range(4)))
    entries = await worker.claim()
    stolen = await other.reclaim(max_entries=2)
    assert [entry.ref for entry in stolen] == refs[:2]
    assert await worker.renew(entries) == [False, False, True, True]
    assert await other.renew(entries) == [True, True, False, False]
    assert list((await lane.owners()).values()) == [b"worker-2", b"worker-2", b"worker-1", b"worker-1"]
    assert await worker.commit(entries) == [True] * 4
    assert await worker.renew(entries) == [False] * 4


async def test_renewing_in_a_group_that_is_gone(gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis) -> None:
    """A renewal raises an error, so that the group is created again at once; in the new group nothing is owned."""
    await gateway.add(request())
    entries = await worker.claim()
    await raw.xgroup_destroy(worker.keys.lanes[0], GROUP)
    with pytest.raises(GroupMissingError):
        await worker.renew(entries)
    await consumer.join(worker.connection, worker.keys)
    assert await worker.renew(entries) == [False]
    await worker.commit(await worker.claim())


async def test_a_renewed_entry_is_not_reclaimed(gateway: Gateway, worker: Worker, other: Worker, lane: Lane) -> None:
    """A slow worker keeps the entries that it renews; only the others are taken."""
    await gateway.add(request(), request())
    kept, abandoned = await worker.claim()
    await make_idle(lane, worker, (kept, abandoned))
    assert await worker.renew([kept]) == [True]
    taken = await other.reclaim(idle_ms=AN_HOUR_MS // 2)
    assert [entry.ref for entry in taken] == [abandoned.ref]
    assert await worker.commit([kept, abandoned]) == [True, True]


async def test_abandoned_entries_are_found_behind_many_renewed_ones(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """Two thousand entries that were just renewed do not hide the few behind them, whatever COUNT is."""
    await gateway.add(*(request() for _ in range(2_005)))
    entries = await worker.claim(entries=10_000)
    assert len(entries) == 2_005
    held, abandoned = entries[:2_000], entries[2_000:]
    await make_idle(lane, worker, abandoned)
    assert await worker.renew(held) == [True] * 2_000
    taken = await other.reclaim(idle_ms=AN_HOUR_MS // 2, max_entries=3)
    assert [entry.ref for entry in taken] == [entry.ref for entry in abandoned[:3]]
    taken = await other.reclaim(idle_ms=AN_HOUR_MS // 2, max_entries=3)
    assert [entry.ref for entry in taken] == [entry.ref for entry in abandoned[3:]]
    assert await worker.commit(entries) == [True] * 2_005


async def test_of_many_reclaims_at_once_one_gets_each_entry(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """Two workers that reclaim at the same time do not get the same entries."""
    await gateway.add(*(request() for _ in range(60)))
    entries = await worker.claim()
    await make_idle(lane, worker, entries)
    taken = await asyncio.gather(
        *(each.reclaim(idle_ms=AN_HOUR_MS // 2, max_entries=10) for _ in range(4) for each in (worker, other))
    )
    ids = [entry.ref.entry_id for batch in taken for entry in batch]
    assert sorted(ids) == sorted(entry.ref.entry_id for entry in entries)
    await worker.commit(entries)


async def test_a_deleted_entry_is_acknowledged_away(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """A pending record without an entry is removed by the next reclaim, which does not return it."""
    refs = await gateway.add(request(), request())
    await worker.claim()
    await lane.client.xdel(lane.name, refs[0].entry_id)
    taken = await other.reclaim()
    assert [entry.ref for entry in taken] == refs[1:]
    assert list(await lane.owners()) == [refs[1].entry_id]
    await other.commit(taken)
    await gateway.submit(request(budget_ms=0))  # resets the counters, which XDEL by hand does not know


async def test_a_reclaim_that_comes_late_takes_nothing(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """A reclaim that reached Redis long after its issue takes nothing: in a stall every worker looked dead."""
    await gateway.add(request())
    entries = await worker.claim()
    now = await other.now_ms()
    assert await other.reclaim_at(now - consumer.MAX_RECLAIM_DELAY_MS - 100) is None
    assert list((await lane.owners()).values()) == [b"worker-1"]
    assert [entry.ref for entry in await other.reclaim()] == [entry.ref for entry in entries]
    await worker.commit(entries)


async def test_attempts_count_what_was_begun(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """When its worker dies an entry that had begun gets one more attempt; its neighbours do not."""
    begun, unbegun = await gateway.add(request(), request())
    first, second = await worker.claim()
    assert (first.attempts, second.attempts) == (0, 0)
    await worker.mark_begun([first])
    taken = await other.reclaim()
    assert [(entry.ref, entry.attempts) for entry in taken] == [(begun, 1), (unbegun, 0)]
    await other.mark_begun(taken)
    again = await worker.reclaim()
    assert [entry.attempts for entry in again] == [2, 1]
    await worker.commit(again)


async def test_a_worker_that_lives_on_is_not_blamed_for_what_it_has_begun(gateway: Gateway, worker: Worker) -> None:
    """Only a worker that has just started counts attempts for entries begun under its name, and once."""
    await gateway.add(request())
    await worker.mark_begun(await worker.claim())
    for restarted, attempts in ((False, 0), (True, 1), (True, 1)):
        (page,) = await worker.read_own_entries(restarted=restarted)
        assert [entry.attempts for entry in page.entries] == [attempts]
    await worker.commit(page.entries)


async def test_a_worker_reads_its_own_entries_in_pages(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """Each page is bounded over both lanes; together they have each of its entries once, and those that it had begun.

    The record of these goes with the last page, or loses what a page has counted: a search that is broken off, and
    repeated from the start, counts no attempt twice.
    """
    refs = await gateway.add(*(request() for _ in range(5)), *(request(lane=BULK) for _ in range(4)))
    held = await worker.claim(entries=9)
    await gateway.add(request())
    (theirs,) = await other.claim()
    assert [entry.ref for entry in held] == refs
    await worker.mark_begun([held[i] for i in (0, 4, 8)])
    record = worker.keys.begun(worker.name)
    first = await worker.read_own_page(2, restarted=True)
    assert [entry.attempts for entry in first.entries] == [1, 0]
    left: Any = await lane.client.get(record)
    assert set(left.split()) == {b"0/" + refs[4].entry_id, b"1/" + refs[8].entry_id}
    assert await lane.client.pttl(record) > 0
    pages = await worker.read_own_entries(2, restarted=True)
    assert [len(page.entries) for page in pages] == [2, 2, 2, 2, 1]
    found = [entry for page in pages for entry in page.entries]
    assert [entry.ref for entry in found] == refs
    assert [entry.attempts for entry in found] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert await lane.client.exists(record) == 0
    await worker.commit(found)
    await other.commit([theirs])


async def test_a_worker_reads_past_many_entries_of_another_revision(gateway: Gateway, worker: Worker) -> None:
    """Pages without any entry for its revision do not end the search."""
    many = 2_200
    await gateway.add(*(request()._replace(revision="b") for _ in range(many)), request(), request(lane=BULK))
    held: list[Entry] = []
    while len(held) < many + 2:
        held += await worker.claim(entries=512, held=len(held))
    query, found = consumer.ReclaimQuery(0, worker.name, max_entries=1, revision="a"), list[Entry]()
    num_pages = 0
    while not num_pages or query.cursor:
        page = await worker.reclaim_in_time(query)
        num_pages += 1
        found += page.entries
        query = replace(query, cursor=page.cursor)
    assert num_pages > 2
    assert {entry.ref for entry in found} == {entry.ref for entry in held if not entry.revision}
    await worker.commit(held)


async def test_what_is_for_one_revision_is_left_to_it(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Entries for another revision are left to it, even many; after its deadline any worker may take one."""
    many = 900
    late = request(budget_ms=50)._replace(revision="b")
    await gateway.add(*(request()._replace(revision="b") for _ in range(many)), late, request())
    entries = await worker.claim(entries=many + 2)
    assert {entry.revision for entry in entries} == {"b", ""}
    await worker.hand_back(entries)
    await asyncio.sleep(0.06)
    of_a = await other.reclaim(revision="a", max_entries=10)
    assert [entry.revision for entry in of_a] == ["b", ""]
    await other.commit(of_a)
    of_b = await worker.reclaim(max_entries=many + 2, revision="b")
    assert len(of_b) == many
    await worker.commit(of_b)


async def test_a_reclaim_that_finds_a_group_missing_takes_nothing(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane, raw: redis.asyncio.Redis
) -> None:
    """Otherwise entries from the lanes before would belong to a worker that does not know it."""
    await gateway.add(request())
    entries = await worker.claim()
    await raw.xgroup_destroy(worker.keys.lanes[BULK], GROUP)
    with pytest.raises(GroupMissingError):
        await other.reclaim()
    assert list((await lane.owners()).values()) == [b"worker-1"]
    await consumer.join(other.connection, other.keys)
    await worker.commit(entries)


async def test_a_renewal_counts_lost_entries_that_are_still_in_a_lane(
    queue: QueueConnections, gateway: Gateway, worker: Worker, other: Worker
) -> None:
    """A cancelled entry is gone; one that another worker took, or whose group is new, is still in its lane."""
    refs = await gateway.add(*(request() for _ in range(3)))
    entries = await worker.claim()
    await producer.cancel(queue.connection("cancel"), queue.keys, refs[:1], [])
    renewed = await consumer.renew(worker.connection, queue.keys, worker.name, entries)
    assert (renewed.owned, renewed.unowned_in_lane) == ((False, True, True), 0)
    await other.reclaim(max_entries=1)
    renewed = await consumer.renew(worker.connection, queue.keys, worker.name, entries)
    assert (renewed.owned, renewed.unowned_in_lane) == ((False, False, True), 1)
    await worker.commit(entries)


async def test_renewing_does_not_count_as_an_attempt(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Renewing, and reading one's own entries again, do not change the attempts."""
    await gateway.add(request())
    await worker.mark_begun(await worker.claim())
    taken = await other.reclaim()
    for _ in range(3):
        assert await other.renew(taken) == [True]
        assert [entry.attempts for entry in await other.reclaim(owner=other.name)] == [1]
    assert [entry.attempts for entry in await worker.reclaim()] == [1]
    await worker.commit(taken)


async def test_a_new_batch_replaces_the_one_that_was_begun(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Attempts count only for the entries that were begun last: the others had ended."""
    await gateway.add(request(), request())
    first, second = await worker.claim()
    await worker.mark_begun([first])
    await worker.mark_begun([second])
    assert [entry.attempts for entry in await other.reclaim()] == [0, 1]
    await worker.commit([first, second])


async def test_a_reclaim_from_one_owner_leaves_the_others_alone(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """A worker that reads its own entries again takes none of another worker."""
    await gateway.add(request(), request())
    (mine,) = await worker.claim(entries=1)
    (theirs,) = await other.claim(entries=1)
    assert [entry.ref for entry in await worker.reclaim(owner="worker-1")] == [mine.ref]
    assert list((await lane.owners()).values()) == [b"worker-1", b"worker-2"]
    await worker.commit([mine, theirs])


async def test_names_of_the_dead_are_removed(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """A reclaim removes consumers that are neither alive nor owe anything; those with a heartbeat or entries stay."""
    for name in ("dead", "alive", "owing"):
        await raw.xgroup_createconsumer(lane.name, GROUP, name)
    await raw.set(keys.worker("alive"), "{}", px=60_000)
    await gateway.add(request())
    entries = await Worker(other.connection, keys, "owing").claim()
    await raw.set(keys.begun("dead"), "0/1-1", px=60_000)
    assert await worker.reclaim(idle_ms=AN_HOUR_MS) == ()
    assert await lane.consumers() == {"alive", "owing"}
    assert await raw.exists(keys.begun("dead")) == 0
    await worker.commit(entries)
    await raw.delete(keys.worker("alive"))
    await worker.reclaim()
    assert await lane.consumers() == set()


async def test_a_worker_that_leaves_owing_keeps_its_name(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """Without the name its pending records would go. The record of begun entries stays until a worker takes over."""
    await gateway.add(request(), request())
    first, second = await worker.claim()
    await worker.beat()
    await worker.mark_begun([first])
    assert await worker.leave() == 2
    assert await lane.consumers() == {"worker-1"}
    assert await lane.client.exists(worker.keys.worker("worker-1")) == 0
    taken = await other.reclaim()
    assert [(entry.ref, entry.attempts) for entry in taken] == [(first.ref, 1), (second.ref, 0)]
    assert await worker.leave() == 0
    assert await lane.client.exists(worker.keys.begun("worker-1")) == 0
    assert await lane.consumers() == {"worker-2"}
    assert await other.commit(taken) == [True, True]


async def test_leaving_where_there_is_no_group(worker: Worker, raw: redis.asyncio.Redis) -> None:
    """A worker can leave a queue whose group is missing."""
    await raw.xgroup_destroy(worker.keys.lanes[0], GROUP)
    assert await worker.leave() == 0


@pytest.mark.leaves_consumers(RELEASED)
async def test_what_is_handed_back_is_taken_at_once(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """The next reclaim takes released entries with the usual idle bound, and no attempt is counted."""
    refs = await gateway.add(*(request() for _ in range(3)))
    entries = await worker.claim()
    assert await other.reclaim(idle_ms=60_000) == ()
    assert await worker.hand_back(entries) == 3
    assert set((await lane.owners()).values()) == {RELEASED.encode()}
    taken = await other.reclaim(idle_ms=60_000)
    assert [(entry.ref, entry.attempts) for entry in taken] == [(ref, 0) for ref in refs]
    assert await worker.leave() == 0
    assert await other.commit(taken) == [True] * 3


@pytest.mark.leaves_consumers(RELEASED)
async def test_a_reclaim_counts_entries_that_were_handed_back(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Handed-back entries are normal; entries of another kind come from a worker that died or stalled."""
    bulk = [request(lane=BULK) for _ in range(2)]
    await gateway.add(*(request() for _ in range(3)), *bulk)
    entries = await worker.claim()
    by_lane = [[each for each in entries if each.ref.lane == lane] for lane in range(2)]
    handed = [by_lane[0][0], by_lane[0][2], by_lane[1][0]]
    assert await worker.hand_back(handed) == 3
    claimed = await other.reclaim_in_time(consumer.ReclaimQuery(0))
    assert (len(claimed.entries), claimed.released) == (5, 3)
    again = await worker.reclaim_in_time(consumer.ReclaimQuery(0))
    assert (len(again.entries), again.released) == (5, 0)
    await worker.commit(again.entries)


@pytest.mark.leaves_consumers(RELEASED)
async def test_attempts_survive_a_hand_back(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """An entry keeps its attempts when its next worker hands it back, and gets none for that."""
    await gateway.add(request())
    await worker.mark_begun(await worker.claim())
    taken = await other.reclaim()
    assert await other.hand_back(taken) == 1
    again = await worker.reclaim(idle_ms=60_000)
    assert [entry.attempts for entry in again] == [1]
    await worker.commit(again)


@pytest.mark.leaves_consumers(RELEASED)
async def test_what_was_stolen_is_not_handed_back(gateway: Gateway, worker: Worker, other: Worker, lane: Lane) -> None:
    """Entries that another worker took meanwhile, or that are gone, do not change."""
    await gateway.add(*(request() for _ in range(3)))
    entries = await worker.claim()
    stolen = await other.reclaim(max_entries=1)
    assert await other.commit(entries[1:2]) == [True]
    assert await worker.hand_back(entries) == 1
    assert list((await lane.owners()).values()) == [b"worker-2", RELEASED.encode()]
    assert await other.commit([*stolen, entries[2]]) == [True, True]
    assert await worker.hand_back(entries) == 0


async def test_live_workers_are_counted(worker: Worker, other: Worker, raw: redis.asyncio.Redis, keys: Keys) -> None:
    """A heartbeat returns how many workers sent one within its lifetime; older ones are removed after an hour."""
    now, live = await worker.beat()
    assert live == 1
    assert (await other.beat())[1] == 2
    await raw.zadd(keys.workers, {"long ago": now - consumer.WORKERS_TTL_MS - 1_000, "silent": now - 6_000})
    assert (await worker.beat())[1] == 2
    assert set(await raw.zrange(keys.workers, 0, -1)) == {b"silent", b"worker-1", b"worker-2"}
