"""A worker serves a queue of two shards, each in its own Redis: with one engine and one credit, and one may be away."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.keys import BULK, GROUP, PoolKeys
from shared.messages import EMBED, Body
from tests.integration.worker.sharded_cluster import ShardedCluster, sharded_cluster
from tests.integration.worker.worker_cluster import PendingRequest, WorkerCluster, get_admin, metric, num_reclaimed
from tests.servers import stopped
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SLOW = "simulated:base_ms=300,item_ms=0"
ENDLESS = "simulated:base_ms=60000,item_ms=0"
TEXTS = [f"text {number}" for number in range(20)]


@pytest_asyncio.fixture
async def cluster(queue_name: str, tmp_path: Path) -> AsyncIterator[ShardedCluster]:
    """A queue of two shards; the test starts workers, which end with it."""
    async with sharded_cluster(queue_name, tmp_path) as created:
        yield created


async def test_entries_of_all_shards_are_answered(cluster: ShardedCluster) -> None:
    """Those that wait when the worker starts, and those that come later."""
    before = await cluster.submit_to_each(*TEXTS)
    worker = await cluster.start_worker()
    await cluster.check_replies(before)
    for shard in cluster.shards:
        await wait_until(shard.has_blocked_read, "it waits for an entry of the shard")
    await cluster.check_replies(await cluster.submit_to_each(*TEXTS))
    for shard in cluster.shards:
        await wait_until(shard.is_empty, "the shard is empty")
    addresses = ", ".join(cluster.address(number) for number in range(2))
    assert worker.log_records("worker starts")[0]["redis"] == addresses


async def test_shards_may_have_equal_entry_ids(cluster: ShardedCluster) -> None:
    """All are in flight at once, and each answer goes to its own shard."""
    first, second = cluster.shards
    of_second = await second.submit_many([[f"second {text}"] for text in TEXTS])
    of_first = await first.submit_many([[f"first {text}"] for text in TEXTS])
    entries: list[Any] = [await shard.raw.xrange(shard.lane) for shard in cluster.shards]
    for (entry_id, _), (old_id, fields) in zip(*entries, strict=True):
        await second.raw.xdel(second.lane, old_id)
        await second.raw.xadd(second.lane, fields, id=entry_id)
    await cluster.start_worker("simulated:base_ms=50,item_ms=0", max_batch_size=3, reclaim_idle_ms=600_000)
    await cluster.check_replies([of_first, of_second])


@pytest.mark.exclusive  # a claim that takes longer than 10 ms lets the next one begin
async def test_all_shards_share_one_credit(cluster: ShardedCluster) -> None:
    """Those from which it claims once its engine is ready; only a read that waits may bring one entry more."""
    window = 8
    await cluster.submit_to_each(*TEXTS)
    await cluster.start_worker(ENDLESS, max_batch_size=window, claim_window=window, engine_hang_s=120)

    async def num_pending() -> int:
        return sum([len(await shard.pending_entries()) for shard in cluster.shards])

    async def is_full() -> bool:
        return await num_pending() >= window

    await wait_until(is_full, "the window is full")

    async def reports_all() -> bool:
        beats = [await cluster.beat(cluster.workers[0], number) for number in range(2)]
        return sum(beat.holds for beat in beats if beat is not None) == await num_pending()

    await wait_until(reports_all, "the heartbeats have all entries")
    assert window <= await num_pending() <= window + len(cluster.shards) - 1
    cluster.workers[0].kill()


async def submit_bulk(shard: WorkerCluster, texts: Sequence[str]) -> list[PendingRequest]:
    """Submits entries of bulk."""
    submissions = [shard.submission(Body(EMBED, (text,)))._replace(lane=BULK) for text in texts]
    await shard.gateway.add(*submissions)
    return [PendingRequest(each.request_id, (text,)) for each, text in zip(submissions, texts, strict=True)]


async def test_bulk_has_its_share_over_all_shards(cluster: ShardedCluster) -> None:
    """Interactive entries fill one shard for long: bulk of another, which has nothing else, does not wait for all."""
    busy, quiet = cluster.shards
    of_bulk = await submit_bulk(quiet, TEXTS)
    requests = await busy.submit_many([[f"text {number}"] for number in range(500)])
    share: dict[str, Any] = {"bulk_share": 0.5, "bulk_age_bound_ms": 3_600_000}
    await cluster.start_worker("simulated:base_ms=20,item_ms=0", max_batch_size=4, claim_window=8, **share)
    await quiet.check_replies(of_bulk)
    assert await busy.raw.xlen(busy.lane) > 100
    await busy.check_replies(requests)


async def test_bulk_has_no_more_than_its_share_over_all_shards(cluster: ShardedCluster) -> None:
    """While interactive entries wait in one shard, bulk of another gets a tenth, as if both were in one Redis."""
    busy, quiet = cluster.shards
    texts = [f"text {number}" for number in range(400)]
    of_bulk = await submit_bulk(quiet, texts)
    requests = await busy.submit_many([[text] for text in texts])
    await cluster.start_worker("simulated:base_ms=10,item_ms=0", max_batch_size=4, claim_window=8)
    samples = [(0, 0, 0)]  # answers: interactive ones; then those of bulk; then interactive ones again

    async def is_busy_empty() -> bool:
        of_quiet = len(texts) - await quiet.raw.xlen(quiet.keys.lanes[BULK])
        samples.append((samples[-1][2], of_quiet, len(texts) - await busy.raw.xlen(busy.lane)))
        return samples[-1][2] == len(texts)

    await wait_until(is_busy_empty, "all interactive entries are answered")
    before, answered, after = samples[-2]  # the last one while some waited
    assert before / 20 - 8 < answered < after / 5 + 8
    await busy.check_replies(requests)
    await quiet.check_replies(of_bulk)


async def test_bulk_goes_behind_interactive_entries_of_another_shard(cluster: ShardedCluster) -> None:
    """Also in a claim from a shard that has interactive entries, but too few to fill the credit."""
    busy, quiet = cluster.shards
    bulk_lane = quiet.keys.lanes[BULK]
    share: dict[str, Any] = {"bulk_share": 0, "bulk_age_bound_ms": 3_600_000}
    await cluster.start_worker("simulated:base_ms=20,item_ms=0", max_batch_size=4, claim_window=8, **share)
    requests = await busy.submit_many([[f"text {number}"] for number in range(200)])
    await wait_until(busy.has_entry_in_progress, "a batch is running")
    of_bulk = await submit_bulk(quiet, TEXTS)
    claimed = 0
    while await busy.raw.xlen(busy.lane) > 40:
        await quiet.check_replies(await quiet.submit_many([["one"]]))
        pending = (await quiet.raw.xpending(bulk_lane, GROUP))["pending"]
        claimed = pending if await busy.raw.xlen(busy.lane) > 40 else claimed
    assert claimed <= 1, "only what a read that waits has brought"
    await busy.check_replies(requests)
    await quiet.check_replies(of_bulk)


async def test_a_redis_that_dies_costs_the_other_shard_nothing(cluster: ShardedCluster) -> None:
    """Its entries, which fill the window, are answered, but the answers cannot be stored: they take up no credit."""
    away, other = cluster.shards
    worker = await cluster.start_worker(SLOW, max_batch_size=8, claim_window=8)
    await away.submit_many([[text] for text in TEXTS])
    await wait_until(away.has_entry_in_progress, "a batch is running")
    cluster.kill_redis(0)
    await other.check_replies(await other.submit_many([[text] for text in TEXTS]))
    await wait_until(lambda: bool(worker.log_records("cannot commit")), "the answers cannot be stored")
    await other.check_replies(await other.submit_many([[text] for text in TEXTS]))
    assert (await get_admin(worker, "/readyz")).status_code == 200
    warnings = [each for message in ("cannot commit", "no heartbeat") for each in worker.log_records(message)]
    assert {each["redis"] for each in warnings} == {cluster.address(0)}
    cluster.servers[0].start()  # empty
    await away.check_replies(await away.submit_many([[text] for text in TEXTS]))
    await wait_until(lambda: _is_idle(cluster, 0), "the worker has forgotten what the first Redis lost")


async def _is_idle(cluster: ShardedCluster, shard: int) -> bool:
    beat = await cluster.beat(cluster.workers[0], shard)
    return beat is not None and beat.holds == 0


async def test_a_redis_that_hangs_costs_the_other_shard_nothing(cluster: ShardedCluster) -> None:
    """The answers to its own entries are stored when it is back."""
    away, other = cluster.shards
    await cluster.start_worker(SLOW, max_batch_size=8, claim_window=8)
    requests = await away.submit_many([[text] for text in TEXTS])
    await wait_until(away.has_entry_in_progress, "a batch is running")
    with stopped(cluster.servers[0]):
        for _ in range(3):
            await other.check_replies(await other.submit_many([[text] for text in TEXTS]))
    await away.check_replies(requests)


async def test_a_worker_is_ready_while_any_redis_answers(cluster: ShardedCluster) -> None:
    """It starts without the first one, and serves the second."""
    cluster.kill_redis(0)
    worker = await cluster.start_worker(served=[1])
    await cluster.shards[1].check_replies(await cluster.shards[1].submit_many([[text] for text in TEXTS]))
    assert (await get_admin(worker, "/readyz")).status_code == 200
    cluster.kill_redis(1)

    async def is_missing_redis() -> bool:
        health = await get_admin(worker, "/readyz")
        return health.status_code == 503 and "redis" in health.text

    await wait_until(is_missing_redis, "it is not ready")
    for server in cluster.servers:
        server.start()
    await cluster.check_replies(await cluster.submit_to_each(*TEXTS))
    assert worker.running


async def test_heartbeats_divide_the_rate_among_the_shards(cluster: ShardedCluster) -> None:
    """While the Redis of one is away, the other has all of it."""
    worker = await cluster.start_worker("simulated:base_ms=10,item_ms=1", max_batch_size=4)
    await cluster.check_replies(await cluster.submit_to_each(*(f"text {number}" for number in range(200))))
    rate = await metric(worker, "redbatch_tokens_per_second")
    assert rate > 0

    async def has(shard: int, share: float) -> bool:
        beat = await cluster.beat(worker, shard)
        whole = await metric(worker, "redbatch_tokens_per_second")
        return beat is not None and beat.tokens_per_s == pytest.approx(share * whole, rel=0.01)

    for number in range(2):
        await wait_until(lambda number=number: has(number, 0.5), "the shard has half of the rate")  # type: ignore[misc]
    cluster.kill_redis(0)
    await wait_until(lambda: has(1, 1.0), "the other shard has the whole rate")
    cluster.servers[0].start()
    for number in range(2):
        await wait_until(lambda number=number: has(number, 0.5), "the shard has half of the rate")  # type: ignore[misc]


async def test_a_drain_hands_back_in_all_shards(cluster: ShardedCluster) -> None:
    """Another worker runs the entries of both at once."""
    worker = await cluster.start_worker(SLOW, max_batch_size=2)
    requests = await cluster.submit_to_each(*(f"text {number}" for number in range(100)))
    await wait_until(cluster.shards[0].has_entry_in_progress, "a batch is running")
    second = await cluster.start_worker(reclaim_idle_ms=60_000)
    for number in range(2):
        await wait_until(lambda number=number: _holds_entries(cluster, number), "it holds entries of the shard")  # type: ignore[misc]
    worker.signal(signal.SIGTERM)
    assert await worker.wait_until_ended() == 0
    assert worker.log_records("worker drained")[0]["left"] == 0
    await cluster.check_replies(requests)
    released, silent = await num_reclaimed(second)
    assert (released > 0, silent) == (True, 0)
    for number, shard in enumerate(cluster.shards):
        beat = await cluster.beat(second, number)
        assert beat is not None
        assert await shard.live_workers() == {beat.worker}
        await wait_until(shard.has_only_live_consumers, "the group contains only live workers")


async def test_a_drain_needs_no_redis_that_is_away(cluster: ShardedCluster) -> None:
    """Unless it still owes answers there, it ends at once, and has left the group of the other shard."""
    worker = await cluster.start_worker()
    await cluster.check_replies(await cluster.submit_to_each(*TEXTS))
    cluster.kill_redis(0)
    await wait_until(lambda: bool(worker.log_records("no heartbeat")), "the worker finds it away")
    worker.signal(signal.SIGTERM)
    assert await worker.wait_until_ended() == 0
    assert await cluster.shards[1].consumers() == set()
    assert [each["redis"] for each in worker.log_records("cannot leave the group")] == [cluster.address(0)]
    assert len(worker.log_records("worker drained")) == 1


async def _holds_entries(cluster: ShardedCluster, shard: int) -> bool:
    beat = await cluster.beat(cluster.workers[0], shard)
    return beat is not None and beat.holds > 0


async def test_entries_of_all_shards_survive_their_engine(cluster: ShardedCluster) -> None:
    """The next one gets them all; those that ran have counted an attempt."""
    worker = await cluster.start_worker(SLOW, max_batch_size=40)
    requests = await cluster.submit_to_each(*TEXTS)
    for shard in cluster.shards:
        await wait_until(shard.has_entry_in_progress, "a batch is running")
    worker.descendants("redbatch engine")[0].kill()
    await cluster.check_replies(requests)


async def test_leases_of_gpus_are_on_the_first_redis(cluster: ShardedCluster) -> None:
    """A worker that needs one serves both shards, and the second has no key of the pool."""
    pool = PoolKeys(cluster.shards[0].keys.queue)
    worker = await cluster.start_worker(gpu_lease="exclusive", gpu_lease_pool=pool.name)
    await cluster.check_replies(await cluster.submit_to_each(*TEXTS))
    pattern = f"{pool.prefix}*"
    found = [[key async for key in shard.raw.scan_iter(match=pattern)] for shard in cluster.shards]
    assert pool.slot("0.0").encode() in found[0]
    assert found[1] == []
    assert await worker.stop() == 0
