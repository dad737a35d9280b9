"""Jobs in Redis: created once, fed into the lanes as there is capacity, answered into their results, ended once."""

from __future__ import annotations

import asyncio
import secrets
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from shared import consumer, job_results, job_uploads, jobs
from shared.codec import decode_body, encode_binary, encode_body, encode_reply
from shared.consumer import ClaimBudget, CommitOptions, EntryAnswer, ReclaimQuery
from shared.errors import RedisUnreachableError
from shared.feed_window import FeedWindow
from shared.job_uploads import UploadReservation
from shared.jobs import CreateResult, JobCapacity, JobSpec
from shared.keys import BULK, INTERACTIVE
from shared.messages import BYTES, EMBED, PREDICT, Body, Entry, Failure, NewEntry, Vectors
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import GRACE_MS, Gateway, Worker, request
from tests.integration.queue.conftest import Lane
from tests.integration.queue.job_client import NOTHING_OWED, PER_ENTRY, JobClient
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def vectors(entry: Entry) -> bytes:
    """Returns the reply to an entry: for each input, its index in the job as a vector of one number."""
    data = array("f", range(entry.position, entry.position + entry.ref.n)).tobytes()
    return encode_reply(Vectors(entry.request_id, entry.position, entry.ref.n, 1, data))


def failure(entry: Entry) -> bytes:
    """Returns an error for an entry."""
    return encode_reply(Failure(entry.request_id, entry.position, entry.ref.n, "input_failed", "no"))


@pytest.fixture
def job_client(queue: QueueConnections, worker_queue: QueueConnections) -> JobClient:
    """A client that creates jobs."""
    return JobClient(queue.connection("jobs"), worker_queue.connection("feed"), queue.keys)


@pytest_asyncio.fixture(autouse=True)
async def end_jobs(queue: QueueConnections) -> AsyncIterator[None]:
    """Ends the jobs and uploads that a test leaves open."""
    yield
    connection = queue.connection("end")
    for job_id in await connection.call("HKEYS", queue.keys.uploads):
        await job_uploads.discard(connection, queue.keys, job_id.decode())
    for each in await jobs.latest(connection, queue.keys, 100):
        await jobs.cancel(connection, queue.keys, each.job_id)


async def results(job_client: JobClient) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Returns the elements of the results stream."""
    found = await job_client.connection.call("XRANGE", job_client.keys.results, "-", "+")
    return [(entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in found]


async def claim(worker: Worker) -> tuple[Entry, ...]:
    """Claims all entries, including bulk."""
    claimed = await consumer.claim(worker.connection, worker.keys, worker.name, ClaimBudget(256, 10**9, 1, 0))
    assert claimed.malformed == ()
    return claimed.entries


async def answer(worker: Worker, entries: Sequence[Entry], *, fail: bool = False, revision: str = "") -> list[bool]:
    """Answers entries with vectors, or errors."""
    replies = [EntryAnswer(each, failure(each) if fail else vectors(each), failed=fail) for each in entries]
    options = CommitOptions(worker.name, GRACE_MS, revision=revision)
    return await consumer.commit(worker.connection, worker.keys, replies, options)


async def test_a_job_lists_its_revisions(job_client: JobClient, worker: Worker) -> None:
    """Each revision is listed once, in order; a failure adds none."""
    job_id = await job_client.create_job(4 * PER_ENTRY)
    entries = await claim(worker)
    assert (await job_client.job(job_id)).revisions == ()
    for entry, revision in zip(entries, ("b", "a.1", "b", ""), strict=True):
        await answer(worker, [entry], revision=revision)
    assert (await job_client.job(job_id)).revisions == ("b", "a.1")
    failed = await job_client.create_job(PER_ENTRY)
    await answer(worker, await claim(worker), fail=True, revision="c")
    assert ((await job_client.job(failed)).status, (await job_client.job(failed)).revisions) == ("failed", ())


async def test_a_job_from_end_to_end(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """A job is queued, runs, and is done; its vectors are in order, and none of its entries stays in the lane."""
    job_id = await job_client.create_job(10)
    assert (await job_client.job(job_id)).status == "queued"
    assert await bulk_lane.length() == 3
    assert (await bulk_lane.fields())[0].keys() >= {b"job", b"id", b"pos", b"tenant"}
    assert await bulk_lane.backlog() == (10, 100)
    assert await job_client.owed() == {"inputs": 10, "lane_inputs": 10, "entries": 3, "tokens": 100}
    entries = await claim(worker)
    assert [(each.request_id, each.position, each.ref.n, each.job) for each in entries] == [
        (job_id, 0, 4, True),
        (job_id, 4, 4, True),
        (job_id, 8, 2, True),
    ]
    assert await answer(worker, entries[2:]) == [True]
    job = await job_client.job(job_id)
    assert (job.status, job.done, job.failed, job.started_ms is not None) == ("running", 2, 0, True)
    assert await answer(worker, entries[:2]) == [True, True]
    job = await job_client.job(job_id)
    assert (job.status, job.done, job.n, job.owner) == ("done", 10, 10, "ann")
    assert await job_client.numbers(job) == list(map(float, range(10)))
    assert await job_client.owed() == NOTHING_OWED
    assert await bulk_lane.length() == 0
    assert await bulk_lane.backlog() == (0, 0)
    (result,) = await results(job_client)
    counts = {b"id": job_id.encode(), b"status": b"done", b"n": b"10", b"done": b"10", b"failed": b"0"}
    assert result[1] == counts | {b"op": b"embed", b"owner": b"ann"}
    for part in ("", ":out"):
        assert 0 < await bulk_lane.client.pttl(f"{job_client.keys.job(job_id)}{part}") <= job.ttl_ms
    assert await bulk_lane.client.exists(*(f"{job_client.keys.job(job_id)}:{part}" for part in ("in", "fed"))) == 0


async def test_a_commit_counts_once(job_client: JobClient, worker: Worker, other: Worker) -> None:
    """The second answer to an entry changes nothing, from any worker, before the job has ended and after."""
    job_id = await job_client.create_job(8)
    entries = await claim(worker)
    again = await other.reclaim()
    assert await answer(worker, entries[:1]) == [True]
    assert await answer(other, again[:1], fail=True) == [False]
    assert ((await job_client.job(job_id)).done, (await job_client.job(job_id)).failed) == (4, 0)
    assert await answer(other, again[1:]) == [True]
    assert await answer(worker, entries, fail=True) == [False, False]
    job = await job_client.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 8, 0)
    assert await job_client.owed() == NOTHING_OWED
    assert len(await worker.connection.call("XRANGE", job_client.keys.results, "-", "+")) == 1


async def test_no_more_is_in_the_lanes_than_fits(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """The rest waits beside the lanes, and is fed as answers make capacity."""
    narrow = FeedWindow(1_024, 100)
    job_id = await job_client.create_job(40, narrow)
    assert await bulk_lane.length() == 3  # 120 tokens: the first that is not under the bound is the last
    done = 0
    while done < 40:
        assert await bulk_lane.length() <= 3
        entries = await claim(worker)
        await answer(worker, entries)
        done += sum(each.ref.n for each in entries)
        await job_client.feed(narrow)
    job = await job_client.job(job_id)
    assert (job.status, await job_client.numbers(job)) == ("done", list(map(float, range(40))))


async def test_the_lanes_hold_a_bounded_number_of_bytes(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """However few tokens the inputs have: those of functions count as one each, and may be megabytes."""
    body = encode_body(Body(PREDICT, (encode_binary(BYTES, bytes(1_000)),)))
    spec = JobSpec("a" * 32, 10, 0, 10, 1, "ann", "ann", op=PREDICT)
    await job_client.reserve(UploadReservation(spec.job_id, 10), [NewEntry(i, 1, 1, body) for i in range(10)])
    narrow = FeedWindow(1_024, 10**9, bytes=2_500)
    assert (await job_client.create(spec, narrow)).status == "ok"
    held: list[Entry] = []
    for left in range(10, 0, -1):
        assert await bulk_lane.length() == min(left, 3)  # the first that is not under the bound is the last
        assert (await job_client.feed(narrow)).entries == 0
        held += await claim(worker)
        await answer(worker, [held.pop(0)])
        assert (await job_client.feed(narrow)).entries == int(left > 3)
    assert (await job_client.job(spec.job_id)).status == "done"
    assert await job_client.lane_bytes() == (0, 0)


async def test_the_bytes_in_the_lanes_are_counted(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """Feeds, answers, splits, cancelled jobs and the check of all jobs keep the count equal to what is there."""

    async def check() -> None:
        counted, num_bytes = await job_client.lane_bytes()
        assert counted == num_bytes > 0

    window = FeedWindow(3, 10**9)
    first, _ = await job_client.create_job(20, window), await job_client.create_job(8, window)
    await check()
    entries = await claim(worker)
    await answer(worker, entries[:1])
    await check()
    await job_client.feed(window._replace(entries=5))
    await check()
    bodies = [encode_body(Body(EMBED, (text,))) for text in decode_body(entries[1].body).inputs]
    assert await jobs.split_entry(job_client.worker_connection, job_client.keys, entries[1], bodies)
    await check()
    await jobs.cancel(job_client.connection, job_client.keys, first)
    await check()
    await bulk_lane.client.hset(job_client.keys.owed, "bytes", "1000000000")
    await job_client.connection.call("HDEL", job_client.keys.owed, "looked_ms")
    await job_client.feed(window)
    await check()
    await answer(worker, await claim(worker))
    assert await job_client.lane_bytes() == (0, 0)


async def test_a_large_entry_passes_alone(job_client: JobClient, bulk_lane: Lane) -> None:
    """An entry above the bound is fed when no other entry of a job is in the lanes."""
    await job_client.create_job(8, FeedWindow(1_024, 1))
    assert await bulk_lane.length() == 1
    assert (await job_client.feed(FeedWindow(1_024, 1))).entries == 0


async def test_jobs_take_turns(job_client: JobClient, worker: Worker) -> None:
    """A small job does not wait for a large earlier one: the job with the fewest tokens fed comes first."""
    narrow = FeedWindow(4, 10**9)
    large, small = await job_client.create_job(200, narrow), await job_client.create_job(16, narrow)
    order: list[str] = []
    for _ in range(5):
        entries = await claim(worker)
        order += [each.request_id for each in entries]
        await answer(worker, entries)
        await job_client.feed(narrow)
    assert (await job_client.job(small)).status == "done"
    assert (await job_client.job(large)).status == "running"
    assert order[:4] == [large] * 4  # there was no other job
    assert order[4:12].count(small) == 4


async def test_an_idempotency_key_makes_one_job(job_client: JobClient) -> None:
    """An equal request, concurrent or later, creates no second job; a different request is reported."""
    first, second = await job_client.upload(4), await job_client.upload(4)
    keyed: dict[str, Any] = {"idempotency": "k" * 8, "digest": "d1"}
    created = await asyncio.gather(
        job_client.create(replace(first, **keyed)), job_client.create(replace(second, **keyed))
    )
    assert list(created) == [CreateResult("ok", first.job_id), CreateResult("same", first.job_id)]
    assert await job_client.create(replace(await job_client.upload(4), **keyed)) == CreateResult("same", first.job_id)
    assert await job_client.create(
        replace(await job_client.upload(4), idempotency="k" * 8, digest="d2")
    ) == CreateResult("different", first.job_id)
    assert [each.job_id for each in await jobs.latest(job_client.connection, job_client.keys, 10)] == [first.job_id]


async def test_inputs_that_cannot_be_run(job_client: JobClient, worker: Worker) -> None:
    """They have failed when the job is created; neighbours share an error, and each of them has it."""
    job_id = secrets.token_hex(16)
    new_entries = [job_client.new_entry(0, 1), job_client.new_entry(3, 1), job_client.new_entry(4, 4)]
    bad = Failure(job_id, 1, 2, "invalid_request", "The text is empty.")
    for _ in range(2):  # the reply to the first was lost
        assert (await job_client.reserve(UploadReservation(job_id, 6), new_entries, [bad])).status == "ok"
    spec = JobSpec(job_id, 3, 2, 8, PER_ENTRY, failures=1)
    assert await job_client.create(spec) == CreateResult("ok", job_id)
    assert (await job_client.job(job_id)).failed == 2
    assert (await job_client.owed())["inputs"] == 6
    entries = await claim(worker)
    assert [(each.position, each.ref.n) for each in entries] == [(0, 1), (3, 1), (4, 4)]
    await answer(worker, entries)
    job = await job_client.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 6, 2)
    assert await job_client.numbers(job) == [0, 3, 4, 5, 6, 7]
    found = await job_results.replies(job_client.connection, job_client.keys, job, 2, 4)
    assert [(each.position, each.n, type(each)) for each in found] == [(1, 2, Failure), (3, 1, Vectors)]
    assert await job_client.owed() == NOTHING_OWED


async def test_a_repeated_creation_changes_nothing(job_client: JobClient, bulk_lane: Lane) -> None:
    """A creation whose reply was lost may be repeated."""
    spec = await job_client.upload(8)
    assert [await job_client.create(spec) for _ in range(3)] == [CreateResult("ok", spec.job_id)] * 3
    assert await job_client.owed() == {"inputs": 8, "lane_inputs": 8, "entries": 2, "tokens": 80}
    assert await bulk_lane.length() == 2


async def test_a_created_job_is_not_discarded(job_client: JobClient, bulk_lane: Lane) -> None:
    """Only an upload is discarded: a created job may be known to another client, even if its creator lost the reply."""
    job_id, unmade = await job_client.create_job(8), (await job_client.upload(8)).job_id
    await job_uploads.discard(job_client.connection, job_client.keys, job_id)
    await job_uploads.discard(job_client.connection, job_client.keys, unmade)
    assert (await job_client.job(job_id)).status == "queued"
    assert await bulk_lane.length() == 2
    parts = [f"{job_client.keys.job(unmade)}{part}" for part in ("", ":in", ":todo", ":out", ":failed")]
    assert await bulk_lane.client.exists(*parts) == 0


@pytest.mark.leaves_anything
async def test_a_damaged_job_does_not_block_others(
    job_client: JobClient, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """If a job lacks a field, the other entries of the same commit are still answered."""
    job_id = await job_client.create_job(4)
    submission = request()
    await gateway.add(submission)
    entries = await claim(worker)
    await lane.client.hdel(job_client.keys.job(job_id), "n")
    await answer(worker, sorted(entries, key=lambda each: not each.job))
    assert len(await lane.replies(submission.request_id)) == 1
    assert await lane.owners() == {}


async def test_an_incomplete_upload_is_no_job(job_client: JobClient) -> None:
    """A job with missing inputs is not created: Redis lost its data, or the upload took too long."""
    spec = await job_client.upload(8)
    await job_client.connection.call("HDEL", f"{job_client.keys.job(spec.job_id)}:in", 4)
    assert (await job_client.create(spec)).status == "lost"
    assert await jobs.find(job_client.connection, job_client.keys, spec.job_id) is None
    unmade = await job_client.upload(8)
    assert await jobs.find(job_client.connection, job_client.keys, unmade.job_id) is None
    ttl_ms = await job_client.worker_connection.call("PTTL", job_client.keys.job(unmade.job_id))
    assert 0 < ttl_ms <= job_uploads.UPLOAD_TTL_MS
    await job_uploads.discard(job_client.connection, job_client.keys, unmade.job_id)
    assert await job_client.owed() == NOTHING_OWED


async def test_results_are_bounded(job_client: JobClient, raw: redis.asyncio.Redis) -> None:
    """Jobs are bounded by the memory that their results will use in Redis."""
    await job_client.create_job(8)
    used = int((await raw.info("memory"))["used_memory"])
    await raw.config_set("maxmemory", 2 * used)
    try:
        assert (
            await job_client.create(await job_client.upload(4), capacity=JobCapacity(used // 10, 0.9))
        ).status == "full"
        assert (await job_client.create(await job_client.upload(4), capacity=JobCapacity(1_600, 0.9))).status == "ok"
    finally:
        await raw.config_set("maxmemory", 0)


async def test_no_job_is_created_when_memory_is_full(job_client: JobClient, raw: redis.asyncio.Redis) -> None:
    """Redis refuses the inputs, and an uploaded job is not created."""
    spec = await job_client.upload(4)
    await raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisUnreachableError):
            await job_client.upload(4)
        assert (await job_client.create(spec)).status == "full"
    finally:
        await raw.config_set("maxmemory", 0)
    assert await jobs.find(job_client.connection, job_client.keys, spec.job_id) is None


async def test_results_are_stored_when_memory_is_full(
    job_client: JobClient, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Their memory was reserved when the job was created."""
    job_id = await job_client.create_job(8)
    entries = await claim(worker)
    await raw.config_set("maxmemory", 1)
    try:
        assert await answer(worker, entries) == [True, True]
        assert (await job_client.job(job_id)).status == "done"
    finally:
        await raw.config_set("maxmemory", 0)


async def test_a_cancelled_job_takes_its_entries_along(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """Waiting and running entries are removed; a later answer changes nothing."""
    job_id = await job_client.create_job(12, FeedWindow(2, 10**9))
    entries = await claim(worker)
    await answer(worker, entries[:1])
    await job_client.feed(FeedWindow(2, 10**9))
    assert await jobs.cancel(job_client.connection, job_client.keys, job_id) == "running"
    assert await bulk_lane.length() == 0
    assert await bulk_lane.owners() == {}
    assert await bulk_lane.backlog() == (0, 0)
    assert await job_client.owed() == NOTHING_OWED
    assert await answer(worker, entries) == [False, False]
    job = await job_client.job(job_id)
    assert (job.status, await job_client.numbers(job)) == ("cancelled", [])
    assert await jobs.cancel(job_client.connection, job_client.keys, job_id) == "cancelled"
    assert await jobs.cancel(job_client.connection, job_client.keys, "0" * 32) == ""
    (result,) = await results(job_client)
    assert result[1][b"status"] == b"cancelled"


async def test_a_cancel_deletes_the_results_of_an_ended_job(
    job_client: JobClient, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Only the status of the job is left, until it expires as before; its counts and the results stream stay."""
    job_id = await job_client.create_job(4)
    await answer(worker, await claim(worker), fail=True)
    assert await jobs.cancel(job_client.connection, job_client.keys, job_id) == "failed"
    job = await job_client.job(job_id)
    assert (job.status, job.failed) == ("deleted", 4)
    key = job_client.keys.job(job_id)
    assert [each async for each in raw.scan_iter(match=f"{key}*")] == [key.encode()]
    assert 0 < await raw.pttl(key) <= job.ttl_ms
    assert len(await results(job_client)) == 1


@pytest.mark.parametrize("by_feed", [True, False])
async def test_a_job_expires(job_client: JobClient, worker: Worker, bulk_lane: Lane, *, by_feed: bool) -> None:
    """An expired job keeps its results; its waiting entries are removed. A feed ends it, or its expiry; once."""
    job_id = await job_client.create_job(8, timeout_ms=300)
    expire = partial(jobs.expire, job_client.connection, job_client.keys, job_id)
    entries = await claim(worker)
    await answer(worker, entries[1:])

    async def has_expired() -> bool:
        return (await job_client.feed()).expired == 1 if by_feed else await expire()

    await wait_until(has_expired, "it expires")
    assert not await expire()
    job = await job_client.job(job_id)
    assert (job.status, job.done, await job_client.numbers(job)) == ("expired", 4, [4, 5, 6, 7])
    assert await answer(worker, entries[:1]) == [False]
    assert (await bulk_lane.length(), await job_client.owed()) == (0, NOTHING_OWED)


async def test_what_fails_is_named(job_client: JobClient, worker: Worker) -> None:
    """A job with some failures is done; one without any vector has failed."""
    job_id = await job_client.create_job(8)
    first, second = await claim(worker)
    await answer(worker, [first], fail=True)
    await answer(worker, [second])
    job = await job_client.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 4, 4)
    (failed,) = await job_results.failures(job_client.connection, job_client.keys, job_id, 10)
    assert (failed.position, failed.n, failed.code) == (0, 4, "input_failed")
    none = await job_client.create_job(4)
    await answer(worker, await claim(worker), fail=True)
    assert (await job_client.job(none)).status == "failed"


async def test_an_entry_that_fails_is_split(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """Each of its inputs runs alone, at its own position, with the same trace; the results form one sequence."""
    job_id = await job_client.create_job(10, traceparent="00-1-2-01")
    entries = await claim(worker)
    bodies = [encode_body(Body(EMBED, (text,))) for text in decode_body(entries[1].body).inputs]
    assert await jobs.split_entry(job_client.worker_connection, job_client.keys, entries[1], bodies)
    assert not await jobs.split_entry(job_client.worker_connection, job_client.keys, entries[1], bodies)
    assert await bulk_lane.backlog() == (10, 100)
    assert await job_client.owed() == {"inputs": 10, "lane_inputs": 10, "entries": 6, "tokens": 100}
    single = await claim(worker)
    assert [(each.position, each.ref.n, decode_body(each.body).inputs) for each in single] == [
        (position, 1, (f"text {position}",)) for position in range(4, 8)
    ]
    assert {each.traceparent for each in (*entries, *single)} == {"00-1-2-01"}
    await answer(worker, single[1:2], fail=True)
    await answer(worker, [*single[:1], *single[2:], entries[0], entries[2]])
    job = await job_client.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 9, 1)
    assert await job_client.numbers(job) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert await job_client.numbers(job, 6, 9) == [6, 7, 8, 9]  # the last entry extends beyond the range
    (failed,) = await job_results.failures(job_client.connection, job_client.keys, job_id, 10)
    assert (failed.position, failed.n) == (5, 1)


async def test_entries_that_went_are_added_again(job_client: JobClient, worker: Worker, bulk_lane: Lane) -> None:
    """After the stream was deleted the job goes on, and an earlier claim counts once."""
    job_id = await job_client.create_job(12)
    entries = await claim(worker)
    await bulk_lane.client.delete(bulk_lane.name)
    await consumer.join(worker.connection, worker.keys)
    await job_client.connection.call("HDEL", job_client.keys.owed, "looked_ms")
    assert (await job_client.feed()).restored == 3
    assert (await job_client.feed()).restored == 0
    assert await answer(worker, entries) == [False] * 3
    await answer(worker, await claim(worker))
    job = await job_client.job(job_id)
    assert (job.status, await job_client.numbers(job)) == ("done", list(map(float, range(12))))


@pytest.mark.leaves_anything
async def test_counters_that_drifted_are_counted_again(job_client: JobClient, bulk_lane: Lane) -> None:
    """After a job was deleted by hand the counters are computed again."""
    job_id, left = await job_client.create_job(8), await job_client.create_job(8)
    await bulk_lane.client.delete(job_client.keys.job(job_id), f"{job_client.keys.job(job_id)}:fed")
    await job_client.connection.call("HDEL", job_client.keys.owed, "looked_ms")
    await job_client.feed()
    assert await job_client.owed() == {"inputs": 8, "lane_inputs": 8, "entries": 2, "tokens": 80}
    assert [each.job_id for each in await jobs.latest(job_client.connection, job_client.keys, 10)] == [left]
    await bulk_lane.client.delete(bulk_lane.name, job_client.keys.backlog)


async def test_jobs_share_lanes_with_requests(job_client: JobClient, gateway: Gateway, worker: Worker) -> None:
    """Requests go first; a job may be interactive too, if its client wants it."""
    await job_client.create_job(4)
    fast = await job_client.create_job(4, lane=INTERACTIVE)
    await gateway.add(request(lane=BULK), request())
    entries = await claim(worker)
    assert [(each.ref.lane, each.job) for each in entries] == [
        (INTERACTIVE, True),
        (INTERACTIVE, False),
        (BULK, True),
        (BULK, False),
    ]
    assert entries[0].request_id == fast
    await answer(worker, entries)


async def test_entries_of_a_dead_worker_are_reclaimed(job_client: JobClient, worker: Worker, other: Worker) -> None:
    """Entries of jobs are reclaimed like others, and marked as such."""
    job_id = await job_client.create_job(4)
    await claim(worker)
    claimed = await other.reclaim_in_time(ReclaimQuery(0))
    assert [each.job for each in claimed.entries] == [True]
    await answer(other, claimed.entries)
    assert (await job_client.job(job_id)).status == "done"
