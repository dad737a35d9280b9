"""Cancel: work that nobody waits for goes away, wherever it is, and its waiter is free at once."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis.asyncio

from shared import producer
from shared.keys import Keys
from shared.connection import BLOCK_S, Queue
from tests.integration.queue.actors import ROUNDS, Gateway, Worker, request, soon
from tests.integration.queue.conftest import Lane
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_an_unread_entry_is_gone(queue: Queue, gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """What no worker has seen is never seen, and the backlog is back at zero."""
    refs = await gateway.add(request(entries=2, n=3, cost=5))
    assert await lane.backlog() == (6, 10)
    assert await producer.cancel(queue.link("cancel"), queue.keys, refs, []) == 2
    assert await lane.backlog() == (0, 0)
    assert await worker.claim() == ()


async def test_a_claimed_entry_leaves_no_pending_record(
    queue: Queue, gateway: Gateway, worker: Worker, other: Worker, lane: Lane
) -> None:
    """What a worker holds is no longer owed: it learns so at the next renewal, and nobody can reclaim it."""
    refs = await gateway.add(request(), request())
    entries = await worker.claim()
    assert await producer.cancel(queue.link("cancel"), queue.keys, refs[:1], []) == 1
    assert list(await lane.owners()) == [refs[1].entry_id]
    assert await worker.renew(entries) == [False, True]
    assert [entry.ref for entry in await other.reclaim()] == refs[1:]
    assert await other.commit(entries) == [False, True]


async def test_cancelling_twice_counts_once(queue: Queue, gateway: Gateway, lane: Lane) -> None:
    """A repeated cancel finds nothing and takes nothing off the counters a second time."""
    first, second = await gateway.add(request(n=2), request(n=4))
    link = queue.link("cancel")
    assert [await producer.cancel(link, queue.keys, [first], []) for _ in range(2)] == [1, 0]
    assert (await lane.backlog())[0] == 4
    assert await producer.cancel(link, queue.keys, [second, first], []) == 1
    assert await lane.backlog() == (0, 0)


async def test_cancelling_before_there_is_a_group(queue: Queue, gateway: Gateway, lane: Lane) -> None:
    """A queue that no worker has ever joined can be cancelled from, too."""
    refs = await gateway.add(request())
    assert await producer.cancel(queue.link("cancel"), queue.keys, refs, []) == 1
    assert await lane.length() == 0


async def test_cancelling_an_answered_entry_finds_nothing(
    queue: Queue, gateway: Gateway, worker: Worker, lane: Lane, keys: Keys
) -> None:
    """Whoever comes second has no effect on the counters; the reply that nobody wants expires soon."""
    asked = request()
    refs = await gateway.add(asked)
    await worker.commit(await worker.claim())
    assert await producer.cancel(queue.link("cancel"), keys, refs, [asked.request_id], wake_ttl_ms=500) == 0
    assert await lane.backlog() == (0, 0)
    assert await lane.client.pttl(keys.reply(asked.request_id)) <= 500


async def test_cancel_races_commit(queue: Queue, gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """Of a cancel and a commit of the same entry at the same time, exactly one finds it: now this one, now that."""
    link = queue.link("cancel")
    found = []
    for _ in range(ROUNDS):
        asked = request(n=2)
        refs = await gateway.add(asked)
        entries = await worker.claim()
        won, gone = await asyncio.gather(
            soon(worker.commit(entries)), soon(producer.cancel(link, queue.keys, refs, []))
        )
        assert won == [gone == 0]
        assert len(await lane.replies(asked.request_id)) == 1 - gone
        found.append(gone)
    assert 0 < sum(found) < ROUNDS
    assert await lane.backlog() == (0, 0)


async def test_a_blocked_waiter_is_woken_at_once(
    queue: Queue, gateway: Gateway, keys: Keys, raw: redis.asyncio.Redis
) -> None:
    """The blocking pop of a cancelled request returns an empty element long before its time is up."""
    asked = request()
    refs = await gateway.add(asked)
    waiting = asyncio.create_task(queue.link("reply").pop(keys.reply(asked.request_id), BLOCK_S))

    async def blocks() -> bool:
        return bool((await raw.info("clients"))["blocked_clients"])

    await wait_until(blocks, "the waiter blocks")
    before = time.monotonic()
    await producer.cancel(queue.link("cancel"), keys, refs, [asked.request_id])
    assert await waiting == b""
    assert time.monotonic() - before < BLOCK_S / 2
    assert await raw.exists(keys.reply(asked.request_id)) == 0


async def test_a_wake_that_nobody_waits_for_expires(queue: Queue, keys: Keys, raw: redis.asyncio.Redis) -> None:
    """The empty element of a waiter that was gone already has a lifetime."""
    await producer.cancel(queue.link("cancel"), keys, [], ["nobody"], wake_ttl_ms=700)
    assert 0 < await raw.pttl(keys.reply("nobody")) <= 700
