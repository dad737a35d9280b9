"""Settle and pulse: what became of requests, and the queue at a glance."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from shared import consumer
from shared import producer
from shared.keys import Keys
from shared.connection import Queue
from shared.producer import Outstanding, Settled
from tests.integration.queue.actors import ROUNDS, Gateway, Worker, request, said, soon
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_each_request_is_told_what_became_of_it(
    queue: Queue, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """In one call: answered ones get their replies, waiting and claimed ones are there, lost ones are not."""
    asked = [request(request_id=name) for name in ("answered", "claimed", "lost", "unread")]
    refs = await gateway.add(*asked)
    entries = await worker.claim(entries=3)
    await worker.commit(entries[:1], "here")
    await lane.client.xdel(lane.name, refs[2].entry_id)
    outstanding = [Outstanding(each.request_id, (ref,)) for each, ref in zip(asked, refs, strict=True)]
    link = queue.link("settle")
    settled = await producer.settle(link, queue.keys, outstanding)
    assert [each.present for each in settled] == [(False,), (True,), (False,), (True,)]
    assert [[said(reply) for reply in each.replies] for each in settled] == [["here"], [], [], []]
    again = await producer.settle(link, queue.keys, outstanding[:1])
    assert again == [Settled((), (False,))]
    await worker.commit(entries[1:])
    await worker.commit(await worker.claim())
    await producer.collect(link, queue.keys, [each.request_id for each in asked])
    await gateway.submit(request(budget_ms=0))  # resets the counters, which XDEL by hand does not know


async def test_the_entries_of_one_request_are_told_apart(
    queue: Queue, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """Of a large request some parts may be answered, some lost and some still there."""
    asked = request(entries=4)
    refs = await gateway.add(asked)
    entries = await worker.claim()
    await worker.commit(entries[:2], "part")
    await lane.client.xdel(lane.name, refs[2].entry_id)
    (settled,) = await producer.settle(queue.link("settle"), queue.keys, [Outstanding(asked.request_id, tuple(refs))])
    assert settled.present == (False, False, False, True)
    assert [said(reply) for reply in settled.replies] == ["part", "part"]
    await worker.commit(entries)
    await gateway.submit(request(budget_ms=0))  # resets the counters, which XDEL by hand does not know


async def test_after_flushall_everything_is_absent(
    queue: Queue, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """A gateway learns that all its requests are lost, adds them again past the bound, and they are answered."""
    asked = [request()._replace(exempt=True) for _ in range(3)]
    refs = await gateway.add(*asked)
    await raw.flushall()
    link = queue.link("settle")
    outstanding = [Outstanding(each.request_id, (ref,)) for each, ref in zip(asked, refs, strict=True)]
    assert await producer.settle(link, queue.keys, outstanding) == [Settled((), (False,))] * 3
    again = await gateway.submit(*asked, bound=0)
    assert [outcome.status for outcome in again.outcomes] == ["ok"] * 3
    await consumer.join(worker.link, queue.keys)
    assert await worker.commit(await worker.claim()) == [True] * 3


async def test_no_id_is_given_twice(queue: Queue, gateway: Gateway, raw: redis.asyncio.Redis) -> None:
    """What was lost is not taken for what came after it, even in the same millisecond (found by the fault suite)."""
    link = queue.link("settle")
    for _ in range(50):
        lost, kept = request(), request()
        (before,) = await gateway.add(lost)
        await raw.flushall()
        (after,) = await gateway.add(kept)
        assert after.entry_id != before.entry_id
        (settled,) = await producer.settle(link, queue.keys, [Outstanding(lost.request_id, (before,))])
        assert settled == Settled((), (False,))
        assert await producer.cancel(link, queue.keys, [before], []) == 0
        assert await producer.cancel(link, queue.keys, [after], []) == 1


async def test_another_entry_under_a_lost_ones_id_is_not_taken_for_it(
    queue: Queue, gateway: Gateway, raw: redis.asyncio.Redis, lane: Lane
) -> None:
    """Somebody may have added it by hand, or with a Redis whose clock went back."""
    lost = request()
    (ref,) = await gateway.add(lost)
    await raw.flushall()
    await lane.client.xadd(lane.name, {"id": "another"}, id=ref.entry_id)
    (settled,) = await producer.settle(queue.link("settle"), queue.keys, [Outstanding(lost.request_id, (ref,))])
    assert settled == Settled((), (False,))
    await raw.flushall()


async def test_settle_races_commit(queue: Queue, gateway: Gateway, worker: Worker) -> None:
    """Whenever it comes, a settle finds either the reply or the entry: never neither, never both."""
    link = queue.link("settle")
    found = []
    for _ in range(ROUNDS):
        asked = request()
        (ref,) = await gateway.add(asked)
        entries = await worker.claim()
        (settled,), won = await asyncio.gather(
            soon(producer.settle(link, queue.keys, [Outstanding(asked.request_id, (ref,))])),
            soon(worker.commit(entries)),
        )
        assert won == [True]
        assert len(settled.replies) + settled.present.count(True) == 1
        collected = await producer.collect(link, queue.keys, [asked.request_id])
        assert len(collected.replies[0]) == 1 - len(settled.replies)
        found.append(len(settled.replies))
    assert 0 < sum(found) < ROUNDS


async def test_settling_nothing(queue: Queue) -> None:
    """No requests, no answers."""
    assert await producer.settle(queue.link("settle"), queue.keys, []) == []


async def test_the_pulse_shows_the_queue(queue: Queue, gateway: Gateway, worker: Worker, other: Worker) -> None:
    """Entries, what is claimed of them, their weight, the oldest one's age, and who lives."""
    link = queue.link("pulse")
    empty = await producer.pulse(link, queue.keys)
    assert (empty.inputs, empty.tokens, empty.entries, empty.waiting) == (0, 0, 0, 0)
    assert (empty.oldest_by_lane, empty.oldest_age_ms) == ((None, None), 0)
    assert (empty.last_heartbeat_ms, empty.workers) == (0, ())
    submitted = await gateway.submit(*(request(n=2, cost=5) for _ in range(3)))
    entries = await worker.claim(entries=1)
    now, _ = await worker.beat()
    shown = await producer.pulse(link, queue.keys)
    assert (shown.inputs, shown.tokens, shown.entries, shown.pending, shown.waiting) == (6, 15, 3, 1, 2)
    oldest_ms = int(submitted.outcomes[0].refs[0].entry_id.split(b"-")[0])
    assert shown.oldest_by_lane == (oldest_ms, None)
    assert (shown.ages_ms, shown.oldest_age_ms) == ((shown.now_ms - oldest_ms, 0), shown.now_ms - oldest_ms)
    assert shown.last_heartbeat_ms == now
    assert [(beat.worker, beat.dim, beat.state) for beat in shown.workers] == [("worker-1", 384, "ready")]
    assert shown.epoch == empty.epoch == submitted.epoch
    await worker.commit((*entries, *await other.claim()))


async def test_the_pulse_survives_strange_heartbeats(
    queue: Queue, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """Heartbeats that this version cannot read are left out; more fields than it knows do no harm."""
    now, _ = await worker.beat()
    beat = bytes(await raw.execute_command("GET", keys.worker("worker-1"))).replace(b"{", b'{"new": 1, ', 1)
    await raw.set(keys.worker("worker-1"), beat, px=5_000)
    for name, value in (("a", b"\xff"), ("b", b"[1]"), ("c", b'{"worker": "c"}'), ("d", b"null")):
        await raw.set(keys.worker(name), value, px=5_000)
        await raw.zadd(keys.workers, {name: now})
    shown = await producer.pulse(queue.link("pulse"), keys)
    assert [each.worker for each in shown.workers] == ["worker-1"]
