"""Reconcile and queue stats: the state of requests, and of the queue."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from shared import consumer, producer
from shared.keys import Keys
from shared.producer import OutstandingRequest, ReconcileResult
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import ROUNDS, Gateway, Worker, after_random_delay, message_of, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_the_state_of_each_request_is_found(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """One call returns the replies of answered requests, and which waiting, claimed or lost entries are present."""
    submissions = [request(request_id=name) for name in ("answered", "claimed", "lost", "unread")]
    refs = await gateway.add(*submissions)
    entries = await worker.claim(entries=3)
    await worker.commit(entries[:1], "here")
    await lane.client.xdel(lane.name, refs[2].entry_id)
    outstanding = [OutstandingRequest(each.request_id, (ref,)) for each, ref in zip(submissions, refs, strict=True)]
    connection = queue.connection("reconcile")
    results = (await producer.reconcile(connection, queue.keys, outstanding)).results
    assert [each.present for each in results] == [(False,), (True,), (False,), (True,)]
    assert [[message_of(reply) for reply in each.replies] for each in results] == [["here"], [], [], []]
    again = await producer.reconcile(connection, queue.keys, outstanding[:1])
    assert again.results == [ReconcileResult((), (False,))]
    await worker.commit(entries[1:])
    await worker.commit(await worker.claim())
    await producer.collect(connection, queue.keys, [each.request_id for each in submissions])
    await gateway.submit(request(budget_ms=0))  # resets the counters, which XDEL by hand does not know


async def test_the_entries_of_one_request_are_distinguished(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """Of a large request some entries may be answered, some lost and some present."""
    submission = request(entries=4)
    refs = await gateway.add(submission)
    entries = await worker.claim()
    await worker.commit(entries[:2], "part")
    await lane.client.xdel(lane.name, refs[2].entry_id)
    _, (result,) = await producer.reconcile(
        queue.connection("reconcile"), queue.keys, [OutstandingRequest(submission.request_id, tuple(refs))]
    )
    assert result.present == (False, False, False, True)
    assert [message_of(reply) for reply in result.replies] == ["part", "part"]
    await worker.commit(entries)
    await gateway.submit(request(budget_ms=0))  # resets the counters, which XDEL by hand does not know


async def test_after_flushall_everything_is_absent(
    queue: QueueConnections, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """A gateway learns that all its requests are lost, adds them again beyond the bound, and they are answered."""
    submissions = [request()._replace(exempt=True) for _ in range(3)]
    refs = await gateway.add(*submissions)
    await raw.flushall()
    connection = queue.connection("reconcile")
    outstanding = [OutstandingRequest(each.request_id, (ref,)) for each, ref in zip(submissions, refs, strict=True)]
    reply = await producer.reconcile(connection, queue.keys, outstanding)
    assert reply == (b"", [ReconcileResult((), (False,))] * 3)
    again = await gateway.submit(*submissions, bound=0)
    assert [outcome.status for outcome in again.outcomes] == ["ok"] * 3
    await consumer.join(worker.connection, queue.keys)
    assert await worker.commit(await worker.claim()) == [True] * 3


async def test_no_id_is_given_twice(queue: QueueConnections, gateway: Gateway, raw: redis.asyncio.Redis) -> None:
    """A lost entry is not confused with a later one, even in the same millisecond (found by the fault suite)."""
    connection = queue.connection("reconcile")
    for _ in range(50):
        lost, kept = request(), request()
        (before,) = await gateway.add(lost)
        await raw.flushall()
        (after,) = await gateway.add(kept)
        assert after.entry_id != before.entry_id
        _, (result,) = await producer.reconcile(
            connection, queue.keys, [OutstandingRequest(lost.request_id, (before,))]
        )
        assert result == ReconcileResult((), (False,))
        assert await producer.cancel(connection, queue.keys, [before], []) == 0
        assert await producer.cancel(connection, queue.keys, [after], []) == 1


async def test_another_entry_under_a_lost_ones_id_is_not_taken_for_it(
    queue: QueueConnections, gateway: Gateway, raw: redis.asyncio.Redis, lane: Lane
) -> None:
    """Another entry under a lost entry's id counts as absent: it was added by hand, or Redis' clock went back."""
    lost = request()
    (ref,) = await gateway.add(lost)
    await raw.flushall()
    await lane.client.xadd(lane.name, {"id": "another"}, id=ref.entry_id)
    _, (result,) = await producer.reconcile(
        queue.connection("reconcile"), queue.keys, [OutstandingRequest(lost.request_id, (ref,))]
    )
    assert result == ReconcileResult((), (False,))
    await raw.flushall()


async def test_reconcile_races_commit(queue: QueueConnections, gateway: Gateway, worker: Worker) -> None:
    """At any moment a reconcile finds either the reply or the entry: never neither, never both."""
    connection = queue.connection("reconcile")
    found = []
    for _ in range(ROUNDS):
        submission = request()
        (ref,) = await gateway.add(submission)
        entries = await worker.claim()
        (_, (result,)), won = await asyncio.gather(
            after_random_delay(
                producer.reconcile(connection, queue.keys, [OutstandingRequest(submission.request_id, (ref,))])
            ),
            after_random_delay(worker.commit(entries)),
        )
        assert won == [True]
        assert len(result.replies) + result.present.count(True) == 1
        collected = await producer.collect(connection, queue.keys, [submission.request_id])
        assert len(collected.replies[0]) == 1 - len(result.replies)
        found.append(len(result.replies))
    assert 0 < sum(found) < ROUNDS


async def test_reconciling_nothing(queue: QueueConnections) -> None:
    """Without requests there are no results."""
    assert await producer.reconcile(queue.connection("reconcile"), queue.keys, []) == (b"", [])


async def test_an_epoch_exempts_from_no_bound(queue: QueueConnections, gateway: Gateway) -> None:
    """Whether entries pass the bounds, and at which epoch they are added, are two things."""
    epoch, _ = await producer.reconcile(queue.connection("reconcile"), queue.keys, [])
    reply = await gateway.submit(request()._replace(epoch=epoch), request()._replace(epoch=b"1.1"), bound=0)
    assert [each.status for each in reply.outcomes] == ["full", "stale"]


async def test_lost_entries_are_added_only_at_the_epoch_at_which_they_were_missed(
    queue: QueueConnections, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """At another one the reconcile may have seen another Redis, or the data may be lost again: nothing is added.

    The queue has no epoch after the loss, and the first submit gives it one.
    """
    lost = [request()._replace(exempt=True) for _ in range(2)]
    refs = await gateway.add(*lost)
    await raw.flushall()
    outstanding = [OutstandingRequest(each.request_id, (ref,)) for each, ref in zip(lost, refs, strict=True)]
    connection = queue.connection("reconcile")
    epoch, _ = await producer.reconcile(connection, queue.keys, outstanding)
    first, second = (each._replace(epoch=epoch) for each in lost)
    assert [each.status for each in (await gateway.submit(first, bound=0)).outcomes] == ["ok"]
    reply = await gateway.submit(second, request(), bound=1)
    assert [each.status for each in reply.outcomes] == ["stale", "full"]
    epoch, _ = await producer.reconcile(connection, queue.keys, outstanding[1:])
    assert epoch == reply.epoch == await raw.get(keys.epoch)
    late = second._replace(epoch=epoch, budget_ms=0)
    again = await gateway.submit(second._replace(epoch=epoch), late, bound=0)
    assert [each.status for each in again.outcomes] == ["ok", "late"]
    await consumer.join(worker.connection, queue.keys)
    assert await worker.commit(await worker.claim()) == [True] * 2


async def test_the_stats_show_the_queue(
    queue: QueueConnections, gateway: Gateway, worker: Worker, other: Worker
) -> None:
    """The stats show entries, how many are claimed, their weight, the age of the oldest, and the live workers."""
    connection = queue.connection("stats")
    empty = await producer.queue_stats(connection, queue.keys)
    assert (empty.inputs, empty.tokens, empty.entries, empty.waiting) == (0, 0, 0, 0)
    assert (empty.oldest_by_lane, empty.oldest_age_ms) == ((None, None), 0)
    assert (empty.last_heartbeat_ms, empty.workers) == (0, ())
    submitted = await gateway.submit(*(request(n=2, cost=5) for _ in range(3)))
    entries = await worker.claim(entries=1)
    now, _ = await worker.beat()
    stats = await producer.queue_stats(connection, queue.keys)
    assert (stats.inputs, stats.tokens, stats.entries, stats.pending, stats.waiting) == (6, 15, 3, 1, 2)
    oldest_ms = int(submitted.outcomes[0].refs[0].entry_id.split(b"-")[0])
    assert stats.oldest_by_lane == (oldest_ms, None)
    assert (stats.ages_ms, stats.oldest_age_ms) == ((stats.now_ms - oldest_ms, 0), stats.now_ms - oldest_ms)
    assert stats.last_heartbeat_ms == now
    assert [(beat.worker, beat.dim, beat.state) for beat in stats.workers] == [("worker-1", 384, "ready")]
    assert stats.epoch == empty.epoch == submitted.epoch
    await worker.commit((*entries, *await other.claim()))


async def test_the_stats_survive_strange_heartbeats(
    queue: QueueConnections, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """Heartbeats that this version cannot read are left out; additional fields do no harm."""
    now, _ = await worker.beat()
    beat = bytes(await raw.execute_command("GET", keys.worker("worker-1"))).replace(b"{", b'{"new": 1, ', 1)
    await raw.set(keys.worker("worker-1"), beat, px=5_000)
    for name, value in (("a", b"\xff"), ("b", b"[1]"), ("c", b'{"worker": "c"}'), ("d", b"null")):
        await raw.set(keys.worker(name), value, px=5_000)
        await raw.zadd(keys.workers, {name: now})
    stats = await producer.queue_stats(queue.connection("stats"), keys)
    assert [each.worker for each in stats.workers] == ["worker-1"]
