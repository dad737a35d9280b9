"""Submit: the entries in the lane, the bounds, and repeating a submit whose reply was lost."""

from __future__ import annotations

import asyncio
import subprocess
import time

import pytest
import redis.asyncio

from redbatch.up.local_redis import find_bundled
from shared import producer
from shared.codec import decode_body
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.producer import QueueBound
from shared.queue_connections import QueueConnections
from shared.redis_errors import ScriptRefusedError
from tests.integration.queue.actors import BOUND, Gateway, Worker, request
from tests.integration.queue.conftest import Lane
from tests.users import as_user

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def drain(worker: Worker) -> int:
    """Claims and answers all entries; returns how many there were."""
    entries = await worker.claim(entries=10_000)
    assert await worker.commit(entries) == [True] * len(entries)
    return len(entries)


async def test_redis_cli_shows_text_fields_first_and_the_body_last(
    gateway: Gateway, worker: Worker, redis_url: str, lane: Lane
) -> None:
    """`redis-cli XRANGE` prints every field but the body as plain text, in the documented order."""
    submission = request(request_id="abc", n=2, cost=7, bell=gateway.keys.bell("g"))._replace(
        tenant="acme", traceparent="00-1-2-01"
    )
    await gateway.add(submission)
    cli = find_bundled("redis-cli")
    assert cli is not None
    command = [str(cli), "--no-auth-warning", "-u", as_user(redis_url, "ops"), "XRANGE", lane.name, "-", "+"]
    shown = (await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)).stdout.split(b"\n", 22)
    names, values = shown[1:21:2], shown[2:21:2]
    assert names == [b"id", b"v", b"n", b"pos", b"cost", b"deadline_ms", b"tenant", b"traceparent", b"bell", b"body"]
    assert values[:5] == [b"abc", b"1", b"2", b"0", b"7"]
    assert values[5].isdigit()
    assert values[6:9] == [b"acme", b"00-1-2-01", gateway.keys.bell("g").encode()]
    assert await drain(worker) == 1


async def test_empty_fields_are_left_out(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """Without tenant, trace and bell an entry has none of these fields."""
    await gateway.add(request())
    fields = (await lane.fields())[0]
    assert list(fields) == [b"id", b"v", b"n", b"pos", b"cost", b"deadline_ms", b"body"]
    assert await drain(worker) == 1


async def test_a_claimed_entry_is_what_was_submitted(gateway: Gateway, worker: Worker) -> None:
    """Every entry of a request arrives with its position, its weight and its body."""
    submission = request(entries=3, n=2, cost=9, bell=gateway.keys.bell("g"))._replace(traceparent="00-1-2-01")
    refs = await gateway.add(submission)
    entries = await worker.claim()
    assert [entry.ref for entry in entries] == refs
    assert [entry.position for entry in entries] == [0, 2, 4]
    assert {(entry.request_id, entry.traceparent, entry.bell) for entry in entries} == {
        (submission.request_id, "00-1-2-01", gateway.keys.bell("g"))
    }
    assert [text for entry in entries for text in decode_body(entry.body).inputs] == [
        text for new_entry in submission.new_entries for text in decode_body(new_entry.body).inputs
    ]
    await worker.commit(entries)


async def test_an_invalid_traceparent_does_not_lose_the_entry(gateway: Gateway, worker: Worker) -> None:
    """An entry with an invalid traceparent is answered like any other."""
    await gateway.add(request()._replace(traceparent="naïve"))
    [entry] = await worker.claim()
    assert not entry.traceparent.isascii()
    assert await worker.commit([entry]) == [True]


async def test_the_deadline_is_redis_clock_plus_the_budget(gateway: Gateway, worker: Worker) -> None:
    """The deadline in the entry counts from the time that the submit returns, not from another clock."""
    reply = await gateway.submit(request(budget_ms=1_234))
    assert abs(reply.now_ms - time.time() * 1000) < 60_000
    entries = await worker.claim()
    assert [entry.deadline_ms for entry in entries] == [reply.now_ms + 1_234]
    await worker.commit(entries)


async def test_the_bound_is_never_exceeded_by_many_gateways_at_once(
    queue: QueueConnections, worker: Worker, lane: Lane
) -> None:
    """Requests that race for the last places are accepted or refused, and the sum never exceeds the bound."""
    gateways = [Gateway(queue.connection(f"submit-{i}"), queue.keys, f"gateway-{i}") for i in range(8)]
    calls = [gateway.submit(request(entries=2, n=3), request(n=1), bound=50) for gateway in gateways for _ in range(10)]
    replies = await asyncio.gather(*calls)
    outcomes = [outcome for reply in replies for outcome in reply.outcomes]
    assert {outcome.status for outcome in outcomes} == {"ok", "full"}
    assert all(len(outcome.refs) == 0 for outcome in outcomes if outcome.status == "full")
    added = sum(ref.n for outcome in outcomes for ref in outcome.refs)
    assert added == 50
    assert (await lane.backlog())[0] == 50
    assert await lane.length() == sum(len(outcome.refs) for outcome in outcomes)
    await drain(worker)
    assert await lane.backlog() == (0, 0)


async def test_a_request_is_added_whole_or_not_at_all(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """A request that does not fit adds no entry, and a smaller one behind it in the same call still fits."""
    reply = await gateway.submit(request(entries=4, n=2), request(entries=2, n=1), bound=7)
    assert [(each.status, len(each.refs)) for each in reply.outcomes] == [("full", 0), ("ok", 2)]
    assert await lane.length() == 2
    assert await drain(worker) == 2


async def test_exempt_requests_pass_the_bound(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """A request that was accepted before is added again however full the queue is, and it counts."""
    await gateway.add(request(n=5))
    reply = await gateway.submit(request(n=1), request(n=3)._replace(exempt=True), bound=5)
    assert [each.status for each in reply.outcomes] == ["full", "ok"]
    assert (await lane.backlog())[0] == 8
    assert await drain(worker) == 2


async def test_a_request_with_too_much_before_it_is_slow(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """It learns how many tokens are queued; requests that fit are added, also in the same call, and count at once."""
    first, second, third = (request(cost=10)._replace(max_tokens=25) for _ in range(3))
    last = request(cost=30)._replace(max_tokens=50)
    reply = await gateway.submit(first, second, third, last)
    assert [(each.status, len(each.refs), each.tokens) for each in reply.outcomes] == [
        ("ok", 1, 0),
        ("ok", 1, 0),
        ("slow", 0, 20),
        ("ok", 1, 0),
    ]
    assert await lane.backlog() == (3, 50)
    reply = await gateway.submit(
        request(cost=1)._replace(max_tokens=50), request(cost=1)._replace(max_tokens=0, exempt=True)
    )
    assert [(each.status, each.tokens) for each in reply.outcomes] == [("slow", 50), ("ok", 0)]
    assert await drain(worker) == 4


async def test_on_an_empty_queue_no_request_is_slow(gateway: Gateway, worker: Worker) -> None:
    """The estimate may be wrong, and waiting for an empty queue would not improve it."""
    reply = await gateway.submit(request(cost=1_000)._replace(max_tokens=1), request(cost=1)._replace(max_tokens=900))
    assert [each.status for each in reply.outcomes] == ["ok", "slow"]
    assert await drain(worker) == 1


@pytest.mark.parametrize("budget_ms", [0, -5])
async def test_a_request_without_time_left_is_late(gateway: Gateway, lane: Lane, budget_ms: int) -> None:
    """A request whose deadline passed on the way is not added, not even an exempt one."""
    reply = await gateway.submit(request(budget_ms=budget_ms), request(budget_ms=budget_ms)._replace(exempt=True))
    assert [(each.status, each.refs) for each in reply.outcomes] == [("late", ()), ("late", ())]
    assert await lane.length() == 0


async def test_repeating_a_sequence_number_adds_nothing(
    queue: QueueConnections, gateway: Gateway, worker: Worker
) -> None:
    """A submit whose reply was lost returns the same when it is repeated, also over another connection."""
    submissions = [request(entries=2), request(budget_ms=0)]
    first = await producer.submit(gateway.connection, queue.keys, "g", 7, QueueBound(BOUND), submissions)
    again = await producer.submit(queue.connection("second"), queue.keys, "g", 7, QueueBound(BOUND), submissions)
    assert again == first
    assert await drain(worker) == 2


async def test_repeating_after_the_entries_were_answered_adds_nothing(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """A repeat after a worker has answered the entries adds nothing: no entry runs twice."""
    submissions = [request()]
    first = await producer.submit(gateway.connection, queue.keys, "g", 1, QueueBound(BOUND), submissions)
    assert await drain(worker) == 1
    assert await producer.submit(gateway.connection, queue.keys, "g", 1, QueueBound(BOUND), submissions) == first
    assert await lane.length() == 0


async def test_an_overtaken_submit_is_refused(
    queue: QueueConnections, gateway: Gateway, lane: Lane, worker: Worker
) -> None:
    """A submit that arrives after a later one of the same gateway adds nothing: its caller has given up on it."""
    await producer.submit(gateway.connection, queue.keys, "g", 10, QueueBound(BOUND), [request()])
    with pytest.raises(ScriptRefusedError):
        await producer.submit(gateway.connection, queue.keys, "g", 9, QueueBound(BOUND), [request()])
    assert await lane.length() == 1
    await producer.submit(gateway.connection, queue.keys, "another", 9, QueueBound(BOUND), [request()])
    assert await drain(worker) == 2


async def test_counters_that_drifted_are_reset_when_the_lanes_are_empty(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, keys: Keys, lane: Lane
) -> None:
    """A backlog that counts inputs while the lanes are empty refuses no request."""
    await raw.execute_command("HSET", keys.backlog, "inputs", 20_000, "tokens", 99_999)
    await gateway.add(request(n=2, cost=3))
    assert await lane.backlog() == (2, 3)
    await drain(worker)


async def test_drifted_counters_are_reset_even_when_nothing_is_added(
    gateway: Gateway, raw: redis.asyncio.Redis, keys: Keys, lane: Lane
) -> None:
    """A submit that adds nothing to empty lanes leaves counters of zero."""
    await raw.execute_command("HSET", keys.backlog, "inputs", 5, "tokens", 5)
    await gateway.submit(request(budget_ms=0))
    assert await lane.backlog() == (0, 0)


async def test_the_epoch_stays_until_data_is_lost(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """Submits return one epoch; after the keys were lost they return another."""
    first = await gateway.submit(request())
    second = await gateway.submit(request())
    assert first.epoch == second.epoch != b""
    await drain(worker)
    await raw.flushall()
    third = await gateway.submit(request(budget_ms=0))
    assert third.epoch not in (b"", first.epoch)


@pytest.mark.parametrize("waiting", [0, 1])
async def test_a_full_memory_refuses_submits(
    gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis, lane: Lane, waiting: int
) -> None:
    """With no memory left a submit is refused whole, with an empty queue or a full one; later submits succeed."""
    await gateway.add(*(request() for _ in range(waiting)))
    await gateway.submit(request(budget_ms=0))
    await raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisUnreachableError):
            await gateway.submit(request(entries=3))
        assert await lane.length() == waiting
    finally:
        await raw.config_set("maxmemory", 0)
    await gateway.add(request())
    assert await drain(worker) == waiting + 1
