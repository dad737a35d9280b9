"""Cancel: entries of abandoned requests are removed, wherever they are, and the waiter is free at once."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from shared import producer
from shared.keys import Keys
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import ROUNDS, Gateway, Worker, after_random_delay, request
from tests.integration.queue.conftest import Lane
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_an_unread_entry_is_gone(queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """An entry that no worker has read is never delivered, and the backlog is back at zero."""
    refs = await gateway.add(request(entries=2, n=3, cost=5))
    assert await lane.backlog() == (6, 10)
    assert await producer.cancel(queue.connection("cancel"), queue.keys, refs, []) == 2
    assert await lane.backlog() == (0, 0)
    assert await worker.claim() == ()


async def test_a_claimed_entry_leaves_no_pending_record(
    queue: QueueConnections, gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """A cancelled entry is no longer owed: its worker learns this at the next renewal, and no worker can reclaim it."""
    refs = await gateway.add(request(), request())
    entries = await worker.claim()
    assert await producer.cancel(queue.connection("cancel"), queue.keys, refs[:1], []) == 1
    assert list(await lane.owners()) == [refs[1].entry_id]
    assert await worker.renew(entries) == [False, True]
    assert [entry.ref for entry in await other.reclaim()] == refs[1:]
    assert await other.commit(entries) == [False, True]


async def test_cancelling_twice_counts_once(queue: QueueConnections, gateway: Gateway, lane: Lane) -> None:
    """A repeated cancel removes nothing, and the counters do not change a second time."""
    first, second = await gateway.add(request(n=2), request(n=4))
    connection = queue.connection("cancel")
    assert [await producer.cancel(connection, queue.keys, [first], []) for _ in range(2)] == [1, 0]
    assert (await lane.backlog())[0] == 4
    assert await producer.cancel(connection, queue.keys, [second, first], []) == 1
    assert await lane.backlog() == (0, 0)


async def test_cancelling_before_there_is_a_group(queue: QueueConnections, gateway: Gateway, lane: Lane) -> None:
    """Entries of a queue that no worker has joined can be cancelled too."""
    refs = await gateway.add(request())
    assert await producer.cancel(queue.connection("cancel"), queue.keys, refs, []) == 1
    assert await lane.length() == 0


async def test_cancelling_an_answered_entry_finds_nothing(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane, keys: Keys
) -> None:
    """A cancel after the answer does not change the counters; the unread reply expires soon."""
    submission = request()
    refs = await gateway.add(submission)
    await worker.commit(await worker.claim())
    assert await producer.cancel(queue.connection("cancel"), keys, refs, [submission.request_id], wake_ttl_ms=500) == 0
    assert await lane.backlog() == (0, 0)
    assert await lane.client.pttl(keys.reply(submission.request_id)) <= 500


async def test_cancel_races_commit(queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """If a cancel and a commit of one entry race, exactly one finds the entry; each wins in some rounds."""
    connection = queue.connection("cancel")
    found = []
    for _ in range(ROUNDS):
        submission = request(n=2)
        refs = await gateway.add(submission)
        entries = await worker.claim()
        won, num_removed = await asyncio.gather(
            after_random_delay(worker.commit(entries)),
            after_random_delay(producer.cancel(connection, queue.keys, refs, [])),
        )
        assert won == [num_removed == 0]
        assert len(await lane.replies(submission.request_id)) == 1 - num_removed
        found.append(num_removed)
    assert 0 < sum(found) < ROUNDS
    assert await lane.backlog() == (0, 0)


async def test_a_blocked_waiter_is_woken_at_once(
    queue: QueueConnections, gateway: Gateway, keys: Keys, raw: redis.asyncio.Redis
) -> None:
    """The blocking pop of a cancelled request, which has no timeout at Redis, returns an empty element."""
    submission = request()
    refs = await gateway.add(submission)
    pop = ("BLPOP", keys.reply(submission.request_id), "0")
    waiting = asyncio.create_task(queue.connection("reply").call(*pop, block_s=60.0))

    async def blocks() -> bool:
        return bool((await raw.info("clients"))["blocked_clients"])

    await wait_until(blocks, "the waiter blocks")
    await producer.cancel(queue.connection("cancel"), keys, refs, [submission.request_id])
    assert (await waiting)[1] == b""
    assert await raw.exists(keys.reply(submission.request_id)) == 0


async def test_a_wake_up_without_a_waiter_expires(
    queue: QueueConnections, keys: Keys, raw: redis.asyncio.Redis
) -> None:
    """The empty element for a waiter that is num_removed already expires."""
    await producer.cancel(queue.connection("cancel"), keys, [], ["gone"], wake_ttl_ms=30_000)
    assert 0 < await raw.pttl(keys.reply("gone")) <= 30_000
