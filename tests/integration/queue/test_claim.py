"""Claim: a fair share of the backlog, its bounds, and a missing group."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from shared import consumer
from shared.connection import BLOCK_S
from shared.consumer import ClaimBudget, ClaimResult
from shared.keys import GROUP, Keys
from shared.messages import Ref
from shared.redis_errors import GroupMissingError
from tests.integration.queue.actors import Gateway, Worker, request
from tests.integration.queue.conftest import CreateWorker, Lane
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_two_workers_share_a_backlog(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """With two live workers the first claims half of the backlog, so that the second is not idle."""
    await gateway.add(*(request() for _ in range(100)))
    first = await worker.claim(workers=2)
    second = await other.claim(workers=2)
    assert (len(first), len(second)) == (50, 50)
    assert len({entry.ref.entry_id for entry in (*first, *second)}) == 100
    await worker.commit((*first, *second))


async def test_a_worker_that_holds_its_share_leaves_the_rest(gateway: Gateway, worker: Worker) -> None:
    """A further claim gets nothing of another worker's share, and returns how many entries remain."""
    await gateway.add(*(request() for _ in range(10)))
    first = await worker.claim(workers=2)
    again = await consumer.claim(worker.connection, worker.keys, worker.name, ClaimBudget(100, 10**6, 2, len(first)))
    assert (len(first), again.entries, again.remaining) == (5, (), (5, 0))
    await worker.commit((*first, *await worker.claim()))


async def test_claims_at_once_never_give_an_entry_twice(gateway: Gateway, create_worker: CreateWorker) -> None:
    """When many workers claim at the same time, each entry goes to exactly one of them."""
    workers = [await create_worker(f"worker-{i}") for i in range(6)]
    await gateway.add(*(request() for _ in range(200)))
    taken = await asyncio.gather(*(each.claim(entries=7, workers=6) for _ in range(20) for each in workers))
    left = await workers[0].claim()
    ids = [entry.ref.entry_id for entries in (*taken, left) for entry in entries]
    assert len(ids) == len(set(ids)) == 200
    await workers[0].commit([entry for entries in (*taken, left) for entry in entries])


async def test_a_small_backlog_goes_to_the_first_claim(gateway: Gateway, worker: Worker) -> None:
    """A worker that holds nothing gets one entry, however many workers there are."""
    await gateway.add(*(request() for _ in range(3)))
    entries = await worker.claim(workers=10)
    assert len(entries) == 1
    await worker.commit((*entries, *await worker.claim()))


async def test_what_others_hold_is_not_backlog(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """A share is computed from all entries, and entries that other workers hold cannot be claimed."""
    await gateway.add(*(request() for _ in range(40)))
    held = await worker.claim(entries=30)
    assert len(await other.claim(workers=2)) == 10
    await worker.commit(held)
    await other.commit((*await other.reclaim(owner="worker-2"), *await other.claim()))


async def test_entries_are_bounded_and_in_order(gateway: Gateway, worker: Worker) -> None:
    """A claim returns at most `entries` entries, the oldest first."""
    refs = await gateway.add(*(request() for _ in range(90)))
    first = await worker.claim(entries=70)
    second = await worker.claim(entries=70)
    assert [entry.ref for entry in (*first, *second)] == refs
    assert len(first) == 70
    await worker.commit((*first, *second))


async def test_tokens_bound_a_claim(gateway: Gateway, worker: Worker) -> None:
    """A claim returns entries up to its tokens; of entries that exceed these, it returns one."""
    await gateway.add(*(request(cost=100) for _ in range(200)))
    entries = await worker.claim(tokens=4_000)
    assert sum(entry.ref.cost for entry in entries) == 4_000
    assert await worker.claim(tokens=0) == ()
    large = await worker.claim(tokens=10)
    assert len(large) == 1
    await worker.commit((*entries, *large, *await worker.claim()))


async def test_an_empty_lane_gives_nothing(worker: Worker) -> None:
    """A claim never waits."""
    assert await worker.claim() == ()


async def test_a_wait_ends_with_the_first_entry(gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis) -> None:
    """A worker that waits on an empty lane gets the next entry, and owns it."""
    waiting = asyncio.create_task(consumer.await_entry(worker.connection, worker.keys, worker.name))
    await wait_until(lambda: has_blocked_read(raw), "the worker blocks")
    (ref,) = await gateway.add(request())
    (entry,) = await waiting
    assert not isinstance(entry, Ref)
    assert entry.ref == ref
    assert await worker.commit([entry]) == [True]


async def has_blocked_read(raw: redis.asyncio.Redis) -> bool:
    """Whether any client waits in a blocking read."""
    info = await raw.info("clients")
    return int(info["blocked_clients"]) > 0


async def flush_all(raw: redis.asyncio.Redis, keys: Keys) -> None:
    """FLUSHALL."""
    await raw.flushall()
    assert keys.queue


async def destroy_group(raw: redis.asyncio.Redis, keys: Keys) -> None:
    """XGROUP DESTROY."""
    await raw.xgroup_destroy(keys.lanes[0], GROUP)


async def delete_stream(raw: redis.asyncio.Redis, keys: Keys) -> None:
    """DEL of the lane."""
    await raw.delete(keys.lanes[0])


LOSSES = [flush_all, destroy_group, delete_stream]


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_missing_group_raises_an_error(
    worker: Worker, raw: redis.asyncio.Redis, keys: Keys, lose: object
) -> None:
    """Claim, reclaim and wait raise GroupMissingError instead of finding nothing; joining creates the group again."""
    assert callable(lose)
    await lose(raw, keys)
    with pytest.raises(GroupMissingError):
        await worker.claim()
    with pytest.raises(GroupMissingError):
        await worker.reclaim()
    with pytest.raises(GroupMissingError):
        await consumer.await_entry(worker.connection, keys, worker.name)
    assert await consumer.join(worker.connection, keys)
    assert not await consumer.join(worker.connection, keys)
    assert await worker.claim() == ()


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_group_lost_under_a_waiting_worker(
    worker: Worker, gateway: Gateway, raw: redis.asyncio.Redis, keys: Keys, lose: object
) -> None:
    """A worker that waits while the group is destroyed gets GroupMissingError, or waits in vain until its timeout."""
    assert callable(lose)
    waiting = asyncio.create_task(consumer.await_entry(worker.connection, keys, worker.name))
    await wait_until(lambda: has_blocked_read(raw), "the worker blocks")
    await lose(raw, keys)
    await gateway.add(request())
    done, _ = await asyncio.wait([waiting], timeout=BLOCK_S + 20)
    assert done
    error = waiting.exception()
    assert isinstance(error, GroupMissingError) or (error is None and waiting.result() == ())
    await consumer.join(worker.connection, keys)
    assert len(await worker.commit(await worker.claim())) == 1


async def test_a_recreated_group_delivers_everything_again(
    gateway: Gateway, worker: Worker, other: Worker, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """After XGROUP DESTROY the new group begins at id 0: claimed and unclaimed entries are both delivered."""
    refs = await gateway.add(*(request() for _ in range(10)))
    await worker.claim(entries=4)
    await raw.xgroup_destroy(keys.lanes[0], GROUP)
    await consumer.join(other.connection, keys)
    entries = await other.claim()
    assert [entry.ref for entry in entries] == refs
    assert await other.commit(entries) == [True] * 10


async def test_a_new_group_means_a_new_epoch(worker: Worker, gateway: Gateway, raw: redis.asyncio.Redis) -> None:
    """Joining a queue whose group was lost changes the epoch, so that gateways check their requests."""
    before = (await gateway.submit(request(budget_ms=0))).epoch
    await raw.xgroup_destroy(worker.keys.lanes[0], GROUP)
    await consumer.join(worker.connection, worker.keys)
    assert (await gateway.submit(request(budget_ms=0))).epoch != before


async def test_entries_of_a_lost_claim_come_back(gateway: Gateway, worker: Worker) -> None:
    """A worker that lost the reply to its claim reads its own entries, and no attempt is counted for them."""
    refs = await gateway.add(*(request() for _ in range(5)))
    await worker.claim()
    for _ in range(3):
        own = await worker.reclaim(owner=worker.name)
        assert [(entry.ref, entry.attempts) for entry in own] == [(ref, 0) for ref in refs]
    assert await worker.commit(own) == [True] * 5


async def test_what_is_no_entry_is_malformed_and_can_be_discarded(
    worker: Worker, raw: redis.asyncio.Redis, lane: Lane
) -> None:
    """Invalid entries do not break a claim: it returns them as malformed, and discarding them empties the lane."""
    hostile: list[list[str]] = [
        ["hello", "world"],
        ["id", "a b", "v", "1", "n", "1", "pos", "0", "cost", "1", "deadline_ms", "1", "body", ""],
        ["id", "ab\n", "v", "1", "n", "1", "pos", "0", "cost", "1", "deadline_ms", "1", "body", ""],
        ["id", "ab", "v", "1", "n", "x", "pos", "0", "cost", "nan", "deadline_ms", "1", "body", ""],
        ["id", "ab", "v", "1", "n", "1", "pos", "0", "cost", "1", "body", ""],
        ["id", "ab", "v", "1", "n", "1", "pos", "0", "cost", "1", "deadline_ms", "9" * 40, "body", ""],
        ["id", "ab", "v", "1", "n", "1", "pos", "-1", "cost", "1", "deadline_ms", "1", "body", ""],
        ["id", "\xff", "v", "1", "n", "1", "pos", "0", "cost", "1", "deadline_ms", "1", "body", ""],
    ]
    for fields in hostile:
        await raw.execute_command("XADD", lane.name, "*", *fields)
    claimed: ClaimResult = await consumer.claim(
        worker.connection, worker.keys, worker.name, ClaimBudget(100, 10**6, 1, 0)
    )
    assert claimed.entries == ()
    assert len(claimed.malformed) == len(hostile)
    await consumer.discard(worker.connection, worker.keys, claimed.malformed)
    assert await lane.length() == 0
    await raw.delete(worker.keys.backlog)  # these entries were never counted
