"""Jobs in a worker: it feeds the lanes, stores results, and isolates inputs that fail."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import numpy as np
import pytest

from shared import job_results, job_uploads, jobs
from shared.codec import encode_body
from shared.feed_window import MAX_ENTRIES, FeedWindow
from shared.job_uploads import UploadReservation
from shared.jobs import Job, JobCapacity, JobSpec
from shared.messages import EMBED, Body, NewEntry, Options, Vectors
from tests.integration.worker.worker_cluster import WorkerCluster, hash_vectors
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]

CAPACITY = JobCapacity(1_600, 0.9)
INPUTS_PER_ENTRY = 8
SLOW = "simulated:base_ms=20,item_ms=0"


async def create_job(cluster: WorkerCluster, texts: list[str], options: dict[int, Options] | None = None) -> str:
    """Creates a job and returns its id; `options` maps positions of entries to their options."""
    job_id = secrets.token_hex(16)
    new_entries = []
    for start in range(0, len(texts), INPUTS_PER_ENTRY):
        part = tuple(texts[start : start + INPUTS_PER_ENTRY])
        body = Body(EMBED, part, (options or {}).get(start, Options()))
        new_entries.append(NewEntry(start, len(part), 4 * len(part), encode_body(body)))
    for start in range(0, len(new_entries), 200):
        reservation = UploadReservation(job_id, len(texts))
        await job_uploads.upload(cluster.connection, cluster.keys, reservation, new_entries[start : start + 200])
    spec = JobSpec(job_id, len(new_entries), 0, len(texts), INPUTS_PER_ENTRY)
    assert (await jobs.create(cluster.connection, cluster.keys, spec, CAPACITY, FeedWindow(4, 10**9))).status == "ok"
    return job_id


async def wait_until_ended(cluster: WorkerCluster, job_id: str, timeout_s: float = 60.0) -> Job:
    """Waits until a job has ended, and returns it."""
    jobs_ended: list[Job] = []

    async def has_ended() -> bool:
        job = await jobs.find(cluster.connection, cluster.keys, job_id)
        if job is not None and job.ended:
            jobs_ended.append(job)
        return bool(jobs_ended)

    await wait_until(has_ended, "the job ends", timeout_s=timeout_s)
    return jobs_ended[0]


async def check_results(cluster: WorkerCluster, job: Job, texts: list[str]) -> None:
    """Checks that the results of a job are the vectors of its texts, in order."""
    for start in range(0, job.n, 1_000):
        stop = min(job.n, start + 1_000)
        for reply in await job_results.replies(cluster.connection, cluster.keys, job, start, stop):
            assert isinstance(reply, Vectors)
            vectors = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)
            assert np.array_equal(vectors, hash_vectors(texts[reply.position : reply.position + reply.n]))


async def test_the_lane_is_fed_until_a_job_is_done(cluster: WorkerCluster) -> None:
    """A job far larger than the lane's limit completes, and at most MAX_ENTRIES entries are in the lane at a time."""
    texts = [f"text {i}" for i in range(20_000)]
    job_id = await create_job(cluster, texts)
    await cluster.start_worker()
    depths: list[int] = []

    async def poll() -> None:
        while True:
            depths.append(await cluster.raw.xlen(cluster.keys.lanes[1]))
            await asyncio.sleep(0.005)

    polling = asyncio.create_task(poll())
    job = await wait_until_ended(cluster, job_id)
    polling.cancel()
    assert (job.status, job.done) == ("done", 20_000)
    assert 0 < max(depths) <= MAX_ENTRIES
    await check_results(cluster, job, texts)


async def test_a_job_survives_the_death_of_its_worker(cluster: WorkerCluster) -> None:
    """If the worker is killed while a job runs, another worker completes it, and each input is counted once."""
    texts = [f"text {i}" for i in range(2_000)]
    job_id = await create_job(cluster, texts)
    settings: dict[str, Any] = {"reclaim_idle_ms": 500, "renew_ms": 100, "heartbeat_s": 0.2, "heartbeat_ttl_s": 1.0}
    first = await cluster.start_worker(SLOW, **settings)
    await wait_until(lambda: has_results(cluster, job_id), "the job has results")
    first.kill()
    await cluster.start_worker(SLOW, **settings)
    job = await wait_until_ended(cluster, job_id)
    assert (job.status, job.done, job.failed) == ("done", 2_000, 0)
    await check_results(cluster, job, texts)


async def has_results(cluster: WorkerCluster, job_id: str) -> bool:
    """Whether a job has at least one result."""
    job = await jobs.find(cluster.connection, cluster.keys, job_id)
    return job is not None and job.done > 0


async def test_only_failing_inputs_of_a_job_fail(cluster: WorkerCluster) -> None:
    """An entry that fails is split: each failure has the index of its input, and the other entries have vectors."""
    texts = [f"text {i}" for i in range(24)]
    job_id = await create_job(cluster, texts, {8: Options(prompt_name="none")})
    await cluster.start_worker()
    job = await wait_until_ended(cluster, job_id)
    assert (job.status, job.done, job.failed) == ("done", 16, 8)
    failures = await job_results.failures(cluster.connection, cluster.keys, job_id, 100)
    assert [(each.position, each.n, each.code) for each in failures] == [
        (at, 1, "invalid_request") for at in range(8, 16)
    ]
    replies = await job_results.replies(cluster.connection, cluster.keys, job, 0, 24)
    assert [(each.position, each.n) for each in replies if isinstance(each, Vectors)] == [(0, 8), (16, 8)]
