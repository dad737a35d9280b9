"""What tenants may hold of the jobs: reserved as an upload grows, shared by weight, and released with the job."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from shared import consumer, job_uploads, jobs, producer
from shared.codec import encode_reply
from shared.consumer import ClaimBudget, CommitOptions, EntryAnswer
from shared.feed_window import FeedWindow
from shared.job_uploads import UploadReservation
from shared.jobs import JobSpec
from shared.keys import BULK
from shared.messages import Entry, Failure
from shared.queue_connections import QueueConnections
from shared.tenants import DEFAULT_JOB_BOUNDS, NO_ACTIVE_TENANTS, NO_QUOTA, UNBOUNDED, JobBounds, Limits, Quota
from tests.integration.queue.actors import GRACE_MS, Gateway, Worker, request
from tests.integration.queue.job_client import PER_ENTRY, JobClient
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

KINDS = ("jobs", "job_inputs", "job_bytes", "upload_bytes")
RESULT_KINDS = ("result_bytes", "kept_bytes")
JOB_BYTES, REPLY_BYTES = job_uploads.JOB_BYTES, job_uploads.ELEMENT_BYTES


@pytest_asyncio.fixture
async def job_client(queue: QueueConnections, worker_queue: QueueConnections) -> AsyncIterator[JobClient]:
    """A client that creates jobs; those that a test leaves open are ended."""
    connection = queue.connection("jobs")
    yield JobClient(connection, worker_queue.connection("feed"), queue.keys)
    for job_id in await connection.call("HKEYS", queue.keys.uploads):
        await job_uploads.discard(connection, queue.keys, job_id.decode())
    for each in await jobs.latest(connection, queue.keys, 100):
        await jobs.cancel(connection, queue.keys, each.job_id)


async def reserve(
    job_client: JobClient,
    tenant: str,
    amount: int = 1,
    bounds: JobBounds = DEFAULT_JOB_BOUNDS,
    quota: Quota = NO_QUOTA,
    job_id: str = "",
) -> str:
    """Uploads a job of some inputs, each of ten bytes and a token; returns the outcome."""
    reservation = UploadReservation(
        job_id or secrets.token_hex(16),
        amount,
        10 * amount,
        tokens=amount,
        results=10 * amount,
        tenant=tenant,
        limits=Limits(quota, 0.0),
        bounds=bounds,
    )
    return (await job_client.reserve(reservation, [job_client.new_entry(0, amount)])).status


async def held(job_client: JobClient, tenant: str | None = None, kinds: Sequence[str] = KINDS) -> tuple[int, ...]:
    """Returns what a tenant holds, of each kind; without a tenant, what all hold."""
    fields = [kind if tenant is None else f"{kind} {tenant}" for kind in kinds]
    return tuple(int(each or 0) for each in await job_client.connection.call("HMGET", job_client.keys.owed, *fields))


async def count_again(job_client: JobClient) -> None:
    """Lets a worker check all jobs, which counts what they hold."""
    await job_client.connection.call("HDEL", job_client.keys.owed, "looked_ms")
    await job_client.feed()


async def claim(worker: Worker) -> Sequence[Entry]:
    """Claims all entries."""
    budget = ClaimBudget(256, 10**9, 1, 0)
    return (await consumer.claim(worker.connection, worker.keys, worker.name, budget)).entries


async def fail_entries(worker: Worker, entries: Sequence[Entry]) -> None:
    """Answers entries with errors."""
    failures = [Failure(each.request_id, each.position, each.ref.n, "input_failed", "no") for each in entries]
    answers = [EntryAnswer(*each, failed=True) for each in zip(entries, map(encode_reply, failures), strict=True)]
    await consumer.commit(worker.connection, worker.keys, answers, CommitOptions(worker.name, GRACE_MS))


async def create_with_results(job_client: JobClient, results: int, **fields: Any) -> str:  # noqa: ANN401 - fields of JobSpec
    """Creates a job whose results are expected to take this much, with an input that cannot run; returns its id."""
    job_id = secrets.token_hex(16)
    failure = Failure(job_id, PER_ENTRY, 1, "invalid_request", "The text is empty.")
    reservation = UploadReservation(job_id, PER_ENTRY, 40, results=results, tenant="ann")
    assert (await job_client.reserve(reservation, [job_client.new_entry(0, PER_ENTRY)], [failure])).status == "ok"
    spec = JobSpec(job_id, 1, 1, PER_ENTRY + 1, PER_ENTRY, "ann", "ann", failures=1, **fields)
    assert (await job_client.create(spec)).status == "ok"
    return job_id


async def stored_bytes(job_client: JobClient, job_id: str) -> int:
    """Returns the bytes of the replies of a job, with what each takes beside its content."""
    flat = await job_client.connection.call("HGETALL", job_client.keys.job(job_id) + ":out")
    return sum(len(each) + REPLY_BYTES for each in flat[1::2])


@pytest.mark.parametrize(
    ("bounds", "amount"),
    [
        (JobBounds(jobs=100), 1),
        (JobBounds(inputs=10_000), 100),
        (JobBounds(bytes=100_000), 100),
        (JobBounds(upload_bytes=100_000), 100),
        (JobBounds(result_bytes=100_000), 100),
    ],
    ids=[*KINDS, "result_bytes"],
)
async def test_each_bound_is_shared(job_client: JobClient, bounds: JobBounds, amount: int) -> None:
    """A tenant gets four fifths of each bound, the next the same part of the rest; a tenant without limits gets all."""
    prefix = "" if bounds.result_bytes == UNBOUNDED else "results_"

    async def take(tenant: str) -> int:
        taken = 0
        while (status := await reserve(job_client, tenant, amount, bounds)) == "ok":
            taken += 1
        assert status == prefix + "share"
        return taken

    assert [await take(tenant) for tenant in ("a", "b", "c")] == [80, 16, 3]
    everything = UploadReservation("f" * 32, amount, 10 * amount, results=10 * amount, bounds=bounds)
    assert (await job_client.reserve(everything, [job_client.new_entry(0, amount)])).status == "ok"
    assert await reserve(job_client, "d", amount, bounds) == prefix + "full"
    assert await reserve(job_client, "a", amount, bounds) == prefix + "share", "its own part is the reason"


async def test_a_bound_is_shared_by_weight(job_client: JobClient) -> None:
    """Tenants that grow by their weights end with parts of that ratio, and a part stays free."""
    weights, taken = {"a": 1.0, "b": 2.0, "c": 4.0}, dict.fromkeys("abc", 0)
    bounds, statuses = JobBounds(jobs=290), ["ok"]
    while "ok" in statuses:
        statuses = []
        for tenant in "abbcccc":
            statuses.append(await reserve(job_client, tenant, 1, bounds, Quota(weight=weights[tenant])))
            taken[tenant] += statuses[-1] == "ok"
    assert [taken["a"] / 40, taken["b"] / 80, taken["c"] / 160] == pytest.approx([1, 1, 1], rel=0.15)
    assert sum(taken.values()) < 290


async def test_the_last_job_is_for_a_tenant_without_one(job_client: JobClient) -> None:
    """A tenant that has no job may have one while the bound of all has room."""
    bounds = JobBounds(jobs=3)
    statuses = [await reserve(job_client, tenant, bounds=bounds) for tenant in "aaabb"]
    assert statuses == ["ok", "ok", "share", "ok", "full"]
    assert await reserve(job_client, "c", bounds=bounds) == "full"


async def test_a_single_tenant_may_have_everything(job_client: JobClient) -> None:
    """With a share of 1, only the bounds of all jobs hold."""
    bounds = JobBounds(jobs=2, tenant_share=1.0)
    assert [await reserve(job_client, "a", bounds=bounds) for _ in range(3)] == ["ok", "ok", "full"]


async def test_a_refused_upload_stores_nothing(job_client: JobClient, raw: redis.asyncio.Redis) -> None:
    """Neither for a bound nor for the quota: no key of it exists, and its tenant holds nothing and is not charged."""
    quota = Quota(daily_tokens=10)
    assert await reserve(job_client, "a", 4, JobBounds(inputs=3)) == "share"
    assert await reserve(job_client, "a", 11, quota=quota) == "limited"
    assert [each async for each in raw.scan_iter(match=job_client.keys.job("*"))] == []
    assert await held(job_client) == (0, 0, 0, 0)
    assert await reserve(job_client, "a", 10, quota=quota) == "ok"


async def test_a_growing_upload_is_checked_as_a_whole(job_client: JobClient) -> None:
    """Each portion is charged once, also if it is repeated, and a bucket that is full lets a larger upload pass."""
    quota, job_id = Quota(tokens_per_s=0.001, burst_tokens=10, daily_tokens=100), secrets.token_hex(16)
    amounts = (4, 4, 8, 50, 100)
    assert [await reserve(job_client, "a", n, quota=quota, job_id=job_id) for n in amounts] == ["ok"] * 5
    assert await held(job_client, "a") == (1, 100, 1_000, 1_000)
    assert await reserve(job_client, "a", 101, quota=quota, job_id=job_id) == "limited"
    await job_uploads.discard(job_client.connection, job_client.keys, job_id, Limits(quota, 0.0))
    assert await held(job_client) == (0, 0, 0, 0)
    assert await reserve(job_client, "a", 100, quota=quota) == "ok", "a discarded upload gives its tokens back"


async def test_a_broken_upload_keeps_a_part_of_its_tokens(job_client: JobClient) -> None:
    """Its room is free again, and its tenant gets back the part of its tokens that the caller names."""
    quota, job_id = Quota(daily_tokens=100), secrets.token_hex(16)
    assert await reserve(job_client, "a", 100, quota=quota, job_id=job_id) == "ok"
    for _ in range(2):
        await job_uploads.discard(job_client.connection, job_client.keys, job_id, Limits(quota, 0.0), refund=0.9)
    assert await held(job_client) == (0, 0, 0, 0)
    assert await reserve(job_client, "a", 91, quota=quota) == "limited"
    assert await reserve(job_client, "a", 90, quota=quota) == "ok"


async def test_a_late_upload_does_not_change_its_job(job_client: JobClient, raw: redis.asyncio.Redis) -> None:
    """Inputs that arrive in Redis after their job was created are not stored, and reserve nothing."""
    job_id = await job_client.create_job(4)
    before = await held(job_client)
    late = UploadReservation(job_id, 8, 400, tenant="ann")
    assert (await job_client.reserve(late, [job_client.new_entry(4, 4)])).status == "ok"
    job = await job_client.job(job_id)
    assert (job.status, job.n) == ("queued", 4)
    assert await raw.pttl(job_client.keys.job(job_id)) == -1
    assert await held(job_client) == before
    assert await job_client.connection.call("HKEYS", job_client.keys.uploads) == []


async def test_an_open_job_that_is_cancelled_leaves_only_its_status(
    job_client: JobClient, raw: redis.asyncio.Redis
) -> None:
    """Its inputs, and the errors of those that cannot run, are deleted."""
    job_id = secrets.token_hex(16)
    failure = Failure(job_id, 4, 1, "invalid_request", "The text is empty.")
    reservation = UploadReservation(job_id, 4, 40, tenant="ann")
    assert (await job_client.reserve(reservation, [job_client.new_entry(0, 4)], [failure])).status == "ok"
    assert (await job_client.create(JobSpec(job_id, 1, 1, 5, PER_ENTRY, tenant="ann", failures=1))).status == "ok"
    await jobs.cancel(job_client.connection, job_client.keys, job_id)
    assert [each.decode() async for each in raw.scan_iter(match=job_client.keys.job("*"))] == [
        job_client.keys.job(job_id)
    ]


async def test_an_upload_is_renewed_without_new_inputs(job_client: JobClient, raw: redis.asyncio.Redis) -> None:
    """A call without new inputs reserves nothing more, and lets the upload and its keys live longer."""
    job_id = secrets.token_hex(16)
    reservation = UploadReservation(job_id, 4, 40, tokens=4, tenant="a", limits=Limits(NO_QUOTA, 0.0))
    assert (await job_client.reserve(reservation, [job_client.new_entry(0, 4)])).status == "ok"
    before, keys = await held(job_client, "a"), [job_client.keys.job(job_id), job_client.keys.job(job_id) + ":in"]
    expiry = await job_client.connection.call("HGET", job_client.keys.uploads, job_id)
    for key in keys:
        await job_client.connection.call("PEXPIRE", key, 10_000)
    assert (await job_client.reserve(reservation)).status == "ok"
    assert await held(job_client, "a") == before
    assert await job_client.connection.call("HGET", job_client.keys.uploads, job_id) >= expiry
    assert all([await raw.pttl(key) > 100_000 for key in keys])


async def test_a_known_idempotency_key_stores_nothing(job_client: JobClient, raw: redis.asyncio.Redis) -> None:
    """While its job exists, an upload with the same key reserves and stores nothing."""
    first = replace(await job_client.upload(4), idempotency="k" * 8, digest="d")
    assert (await job_client.create(first)).status == "ok"
    before = await held(job_client)
    again = UploadReservation("e" * 32, 4, idempotency="k" * 8)
    assert (await job_client.reserve(again, [job_client.new_entry(0, 4)])).status == "known"
    assert await held(job_client) == before
    assert await raw.exists(job_client.keys.job("e" * 32)) == 0
    assert (await job_client.create(replace(first, job_id="e" * 32))).status == "same"


async def test_a_job_holds_what_has_no_result(job_client: JobClient, worker: Worker) -> None:
    """A created job is no upload any more; its part shrinks with its results, and is released with its end."""
    await job_client.create_job(4 * PER_ENTRY)
    assert await held(job_client, "ann") == (1, 16, 800, 0)
    entries = await claim(worker)
    await fail_entries(worker, entries[:1])
    await count_again(job_client)
    assert await held(job_client, "ann") == (1, 12, 600, 0)
    await fail_entries(worker, entries[1:])
    assert await held(job_client) == await held(job_client, "ann") == (0, 0, 0, 0)


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_an_idempotency_key_is_kept_as_long_as_its_job(
    job_client: JobClient, worker: Worker, raw: redis.asyncio.Redis, *, is_cancelled: bool
) -> None:
    """It is kept for as long as the job may take at first, and from its end as long as its results."""
    keyed: dict[str, Any] = {"idempotency": "k" * 8, "digest": "d", "timeout_ms": 1_000_000, "ttl_ms": 50_000}
    job_id = await job_client.create_job(PER_ENTRY, **keyed)
    record = job_client.keys.idempotency("k" * 8)
    assert await raw.pttl(record) > 900_000
    if is_cancelled:
        await jobs.cancel(job_client.connection, job_client.keys, job_id)
    else:
        await fail_entries(worker, await claim(worker))
    assert (await job_client.job(job_id)).ended
    assert 0 < await raw.pttl(record) <= 50_000


async def test_cancelled_jobs_release_their_part(job_client: JobClient) -> None:
    """A cancelled job and a repeated cancel or discard leave exactly what others hold."""
    job_id, _ = await job_client.create_job(8), await reserve(job_client, "bob", 3)
    for _ in range(2):
        await jobs.cancel(job_client.connection, job_client.keys, job_id)
        await job_uploads.discard(job_client.connection, job_client.keys, job_id)
    assert await held(job_client) == await held(job_client, "bob") == (1, 3, 30, 30)
    await count_again(job_client)
    assert await held(job_client) == await held(job_client, "bob") == (1, 3, 30, 30)


async def test_a_job_of_which_nothing_is_in_a_lane_is_cancelled(
    job_client: JobClient, raw: redis.asyncio.Redis
) -> None:
    """It waits behind another one: there are zero entries, tokens and bytes to subtract."""
    narrow = FeedWindow(1, 10**9)
    first, second = [await job_client.create_job(8, narrow) for _ in range(2)]
    assert not await raw.exists(f"{job_client.keys.job(second)}:fed")
    for job_id in (second, first):
        await jobs.cancel(job_client.connection, job_client.keys, job_id)
        assert (await job_client.job(job_id)).status == "cancelled"
    assert set((await raw.hgetall(job_client.keys.owed)).values()) == {b"0"}


@pytest.mark.parametrize("by_worker", [True, False])
async def test_uploads_of_dead_gateways_are_released(job_client: JobClient, *, by_worker: bool) -> None:
    """An upload without inputs for two minutes is released: by workers, or where its room is needed."""
    assert await reserve(job_client, "a") == "ok"
    job_id, saved = await job_client.connection.call("HGETALL", job_client.keys.uploads)
    expired = b" ".join([b"1", *saved.split()[1:]])
    await job_client.connection.call("HSET", job_client.keys.uploads, job_id, expired)
    if by_worker:
        await count_again(job_client)
        assert await held(job_client) == (0, 0, 0, 0)
    else:
        assert await reserve(job_client, "b", bounds=JobBounds(jobs=1)) == "ok"
        assert await held(job_client) == await held(job_client, "b") == (1, 1, 10, 10)
    assert (await job_client.create(JobSpec(job_id.decode(), 1, 0, 1, PER_ENTRY))).status == "lost"


async def test_what_drifted_is_counted_again(job_client: JobClient) -> None:
    """Amounts that were changed by hand are corrected, and those of tenants that hold nothing are removed."""
    await job_client.create_job(8)
    await reserve(job_client, "bob", 3)
    expected = await held(job_client, "ann"), await held(job_client, "bob"), await held(job_client)
    changed: list[str | int] = ["jobs", 99, "job_bytes ann", 5, "upload_bytes eve", 7, "job_inputs bob", 0]
    await job_client.connection.call("HSET", job_client.keys.owed, *changed)
    await count_again(job_client)
    assert (await held(job_client, "ann"), await held(job_client, "bob"), await held(job_client)) == expected
    assert await held(job_client, "eve") == (0, 0, 0, 0)


@pytest.mark.parametrize("expected", [10_000, 1])
async def test_results_count_as_expected_and_then_as_stored(
    job_client: JobClient, worker: Worker, expected: int
) -> None:
    """An open job holds what is expected, or what it has if that is more; an ended job exactly what it has."""
    job_id = await create_with_results(job_client, expected)
    assert await held(job_client, "ann", RESULT_KINDS) == (expected, 0)
    await count_again(job_client)
    open_bytes = max(expected, await stored_bytes(job_client, job_id))
    assert await held(job_client, "ann", RESULT_KINDS) == (open_bytes, 0)
    await fail_entries(worker, await claim(worker))
    kept = JOB_BYTES + await stored_bytes(job_client, job_id)
    for _ in range(2):
        for tenant in ("ann", None):
            assert await held(job_client, tenant, RESULT_KINDS) == (0, kept)
        await count_again(job_client)


async def test_deleted_results_are_released_at_once(
    job_client: JobClient, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """Those of an ended job with its deletion, once, and those of an open job with its end."""
    first = await create_with_results(job_client, 500)
    await fail_entries(worker, await claim(worker))
    second = await create_with_results(job_client, 500)
    kept = JOB_BYTES + await stored_bytes(job_client, first)
    assert await held(job_client, "ann", RESULT_KINDS) == (500, kept)
    for _ in range(2):
        await jobs.cancel(job_client.connection, job_client.keys, second)
    assert await held(job_client, "ann", RESULT_KINDS) == (0, kept)
    for _ in range(2):
        await jobs.cancel(job_client.connection, job_client.keys, first)
    assert await held(job_client, None, RESULT_KINDS) == await held(job_client, "ann", RESULT_KINDS) == (0, 0)
    assert await raw.exists(job_client.keys.kept) == 0


@pytest.mark.parametrize("by_worker", [True, False])
async def test_expired_results_are_released(
    job_client: JobClient, worker: Worker, raw: redis.asyncio.Redis, *, by_worker: bool
) -> None:
    """With the keys of their job: by workers, or where their room is needed."""
    job_id = await create_with_results(job_client, 500, ttl_ms=2_000)
    await fail_entries(worker, await claim(worker))
    size = (await held(job_client, None, RESULT_KINDS))[1]
    bounds = JobBounds(result_bytes=size)
    assert await reserve(job_client, "b", bounds=bounds) == "results_full"

    async def has_expired() -> bool:
        return not await raw.exists(job_client.keys.job(job_id))

    await wait_until(has_expired, "the job has expired")
    if by_worker:
        await count_again(job_client)
        assert await held(job_client, None, RESULT_KINDS) == (0, 0)
    assert await reserve(job_client, "b", bounds=bounds) == "ok"
    assert await held(job_client, "ann", RESULT_KINDS) == (0, 0)
    assert await raw.exists(job_client.keys.kept) == 0


async def test_without_kept_jobs_nothing_is_kept(job_client: JobClient) -> None:
    """Amounts whose jobs were deleted by hand are removed once no job is kept any more."""
    await job_client.connection.call("HSET", job_client.keys.owed, "kept_bytes", 9, "kept_bytes ann", 9)
    await count_again(job_client)
    assert await held(job_client, "ann", RESULT_KINDS) == await held(job_client, None, RESULT_KINDS) == (0, 0)


async def test_jobs_make_no_tenant_active(queue: QueueConnections, job_client: JobClient) -> None:
    """They take no share of the first lane, so another tenant has the whole of it."""
    assert await reserve(job_client, "ann") == "ok"
    assert (await producer.queue_stats(queue.connection("stats"), queue.keys)).tenants == NO_ACTIVE_TENANTS


async def test_jobs_do_not_fill_the_queue(job_client: JobClient, gateway: Gateway, worker: Worker) -> None:
    """The entries of jobs have separate bounds: requests may fill the queue, and bulk half of it, beside them."""
    await job_client.create_job(100)
    bound = {"bound": 10, "max_tokens": 100}
    bulk = await gateway.submit(*(request(lane=BULK) for _ in range(6)), **bound)
    assert [each.status for each in bulk.outcomes] == ["ok"] * 5 + ["full"]
    interactive = await gateway.submit(*(request() for _ in range(6)), **bound)
    assert [each.status for each in interactive.outcomes] == ["ok"] * 5 + ["full"]
    entries = await worker.claim()
    assert len(entries) == 100 / PER_ENTRY + 10
    await worker.commit([each for each in entries if not each.job])
    await fail_entries(worker, [each for each in entries if each.job])
    again = await gateway.submit(*(request() for _ in range(11)), **bound)
    assert [each.status for each in again.outcomes] == ["ok"] * 10 + ["full"]
    await worker.commit(await worker.claim())
