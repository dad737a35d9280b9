"""Commit: one answer for each entry, the first one, and no other effect."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from shared import consumer, producer
from shared.keys import GROUP, Keys
from shared.producer import Bell
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import Gateway, Worker, message_of, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_of_two_commits_exactly_one_counts(
    queue: QueueConnections, gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """Two workers that ran the same entries answer at the same time: each entry has one reply, from the winner."""
    submissions = [request() for _ in range(50)]
    await gateway.add(*submissions)
    mine = await worker.claim()
    theirs = await other.reclaim()
    assert [entry.ref for entry in mine] == [entry.ref for entry in theirs]
    won = await asyncio.gather(
        *(worker.commit([entry], "one") for entry in mine[:25]),
        other.commit(theirs, "two"),
        *(worker.commit([entry], "one") for entry in mine[25:]),
    )
    ones, twos = [flags[0] for flags in (*won[:25], *won[26:])], won[25]
    assert [one != two for one, two in zip(ones, twos, strict=True)] == [True] * 50
    for each, one in zip(submissions, ones, strict=True):
        assert [message_of(reply) for reply in await lane.replies(each.request_id)] == ["one" if one else "two"]
    assert await lane.backlog() == (0, 0)
    await producer.collect(queue.connection("collect"), queue.keys, [each.request_id for each in submissions])


async def test_repeating_a_commit_changes_nothing(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """A commit whose reply was lost may be repeated: there is still one reply, and the counters are right."""
    submission = request(n=3)
    await gateway.add(submission)
    entries = await worker.claim()
    assert await worker.commit(entries, "first") == [True]
    assert await worker.commit(entries, "again") == [False]
    assert [message_of(reply) for reply in await lane.replies(submission.request_id)] == ["first"]
    assert await lane.backlog() == (0, 0)


async def test_what_was_claimed_from_a_group_that_is_gone_is_answered_once(
    gateway: Gateway, worker: Worker, other: Worker, lane: Lane, raw: redis.asyncio.Redis
) -> None:
    """Whether or not the group is created again and has delivered the entry again: the first answer counts."""
    submissions = [request() for _ in range(3)]
    await gateway.add(*submissions)
    without, undelivered, delivered = await worker.claim()
    await raw.xgroup_destroy(lane.name, GROUP)
    assert await worker.commit([without], "first") == [True]
    await consumer.join(other.connection, other.keys)
    assert await worker.commit([undelivered], "first") == [True]
    again = await other.claim()
    assert [entry.ref for entry in again] == [delivered.ref]
    assert await worker.commit([delivered], "first") == [True]
    assert await other.commit(again, "second") == [False]
    for each in submissions:
        assert [message_of(reply) for reply in await lane.replies(each.request_id)] == ["first"]
    assert await lane.length() == 0
    assert await lane.backlog() == (0, 0)


async def test_a_commit_after_flushall_leaves_no_key(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """When all data is gone a commit answers, counts and creates nothing."""
    await gateway.add(request(bell=keys.bell("g")))
    entries = await worker.claim()
    await raw.flushall()
    assert await worker.commit(entries) == [False]
    assert await raw.keys(f"{keys.prefix}*") == []


async def test_a_commit_after_a_cancel_touches_nothing(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane, keys: Keys
) -> None:
    """The answer to a cancelled request goes nowhere, and rings no bell."""
    submission = request(n=2, bell=keys.bell("g"))
    refs = await gateway.add(submission)
    entries = await worker.claim()
    assert await producer.cancel(queue.connection("cancel"), keys, refs, []) == 1
    assert await worker.commit(entries) == [False]
    assert await lane.replies(submission.request_id) == []
    assert await lane.client.exists(keys.bell("g")) == 0
    assert await lane.backlog() == (0, 0)


async def test_one_commit_may_win_and_lose(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane, keys: Keys
) -> None:
    """Each entry of a batch is judged separately, and the counters keep the entries that are still there."""
    refs = await gateway.add(*(request(n=2, cost=5) for _ in range(4)))
    entries = await worker.claim(entries=3)
    await producer.cancel(queue.connection("cancel"), keys, refs[1:2], [])
    assert await worker.commit(entries) == [True, False, True]
    assert await lane.backlog() == (2, 5)
    await worker.commit(await worker.claim())


async def test_a_reply_lives_until_its_deadline_and_the_grace(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """The reply key expires at the request's deadline plus the grace; after the deadline, after the grace."""
    early, late = request(budget_ms=30_000), request(budget_ms=1)
    submitted = await gateway.submit(early, late)
    entries = await worker.claim()
    before = await worker.now_ms()
    await worker.commit(entries, grace_ms=5_000)
    deadline = submitted.now_ms + 30_000
    ttl = await raw.pttl(keys.reply(early.request_id))
    after = await worker.now_ms()
    assert deadline + 5_000 - after <= ttl <= deadline + 5_000 - before
    assert 0 < await raw.pttl(keys.reply(late.request_id)) <= 5_001


async def test_a_bell_rings_once_and_names_all_that_is_ready(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """One commit pushes one element on each gateway's bell, with the ids of the answered requests; the bell expires."""
    mine = [request(bell=keys.bell("a")) for _ in range(3)]
    theirs = [request(bell=keys.bell("b"))]
    await gateway.add(mine[0], theirs[0], request(), *mine[1:])
    assert await worker.commit(await worker.claim()) == [True] * 5
    for bell, expected in ((keys.bell("a"), mine), (keys.bell("b"), theirs)):
        elements = await raw.execute_command("LRANGE", bell, 0, -1)
        assert [element.decode().split(" ") for element in elements] == [[each.request_id for each in expected]]
        assert 0 < await raw.pttl(bell) <= consumer.BELL_TTL_MS


async def test_a_bell_of_another_queue_is_not_rung(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, lane: Lane
) -> None:
    """An entry cannot make a worker write to a key that is no bell of its queue; its request is still answered."""
    submission = request(bell="rb:{elsewhere}:bell:g")
    await gateway.add(submission)
    assert await worker.commit(await worker.claim()) == [True]
    assert await raw.exists("rb:{elsewhere}:bell:g") == 0
    assert len(await lane.replies(submission.request_id)) == 1


async def test_the_entries_of_a_request_are_answered_under_one_key(
    gateway: Gateway, worker: Worker, queue: QueueConnections
) -> None:
    """Each entry of a large request pushes a reply, and collecting pops them all."""
    submission, silent = request(entries=5), request(budget_ms=0)
    await gateway.submit(submission, silent)
    await worker.commit(await worker.claim(), "part")
    connection = queue.connection("collect")
    collected = await producer.collect(connection, queue.keys, [submission.request_id, silent.request_id])
    assert [len(each) for each in collected.replies] == [5, 0]
    assert await producer.collect(connection, queue.keys, [submission.request_id]) == ([[]], [])


@pytest.mark.parametrize(
    ("max_bytes", "calls"),
    [
        (1, [(0, 1), (0, 1), (0, 1), (2, 1), (0, 1), (1, 0)]),
        (250, [(0, 2), (2, 2), (1, 1)]),
        (10**6, [(3, 5)]),
    ],
)
async def test_replies_are_collected_within_a_number_of_bytes(
    gateway: Gateway, worker: Worker, queue: QueueConnections, max_bytes: int, calls: list[tuple[int, int]]
) -> None:
    """Each call ends with the reply that reaches the number, and the next one goes on; no reply is lost."""
    submissions = [request(entries=3), request(budget_ms=0), request(entries=2)]
    await gateway.submit(*submissions)
    await worker.commit(await worker.claim(), "x" * 100)
    connection, found = queue.connection("collect"), []
    ids = [each.request_id for each in submissions]
    while ids:
        num_complete, replies = await producer.collect_within(connection, queue.keys, ids, max_bytes)
        assert all(message_of(each) == "x" * 100 for each in replies)
        found.append((num_complete, len(replies)))
        ids = ids[num_complete:]
    assert found == calls


async def test_collecting_takes_what_the_bell_announces(
    gateway: Gateway, worker: Worker, queue: QueueConnections
) -> None:
    """A commit is one element of the bell; at most `max_elements` are popped, and each names its requests."""
    submissions = [request(bell=queue.keys.bell("g")) for _ in range(4)]
    await gateway.add(*submissions)
    entries = await worker.claim()
    for some in (entries[:2], entries[2:3], entries[3:]):
        await worker.commit(some)
    connection, ids = queue.connection("collect"), [each.request_id for each in submissions]
    assert await producer.collect(connection, queue.keys, [], Bell("g", 2)) == ([], ids[:3])
    replies, announced = await producer.collect(connection, queue.keys, ids[:3], Bell("g", 2))
    assert ([len(each) for each in replies], announced) == ([1, 1, 1], ids[3:])
    assert await producer.collect(connection, queue.keys, [], Bell("g", 2)) == ([], [])
    assert len((await producer.collect(connection, queue.keys, ids[3:])).replies[0]) == 1


async def test_work_goes_on_when_memory_is_full(
    queue: QueueConnections, gateway: Gateway, worker: Worker, other: Worker, raw: redis.asyncio.Redis
) -> None:
    """With no memory left accepted entries are claimed, renewed, begun, reclaimed, answered and collected."""
    submissions = [request(bell=queue.keys.bell("g")) for _ in range(3)]
    await gateway.add(*submissions)
    await worker.beat()
    await other.beat()
    await raw.config_set("maxmemory", 1)
    try:
        await worker.beat()
        entries = await worker.claim()
        assert await worker.renew(entries) == [True] * 3
        await worker.mark_begun(entries)
        assert len(await other.reclaim()) == 3
        assert await other.commit(entries) == [True] * 3
        assert await other.commit(entries) == [False] * 3
        collected = await producer.collect(
            queue.connection("collect"), queue.keys, [each.request_id for each in submissions]
        )
        assert [len(each) for each in collected.replies] == [1, 1, 1]
    finally:
        await raw.config_set("maxmemory", 0)


async def test_an_entry_deleted_by_hand_gets_no_reply(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """A commit of an entry that was deleted by hand sends no reply, and owes nothing afterwards."""
    submission = request()
    (ref,) = await gateway.add(submission)
    entries = await worker.claim()
    await lane.client.xdel(lane.name, ref.entry_id)
    assert await worker.commit(entries) == [False]
    assert await lane.replies(submission.request_id) == []
    assert await lane.owners() == {}
    await gateway.submit(request(budget_ms=0))  # resets the counters, which XDEL by hand does not know
