"""Jobs as a worker sees them: it feeds the lanes, answers into results, and lets inputs fail alone."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import numpy as np
import pytest

from shared import jobs
from shared.codec import encode_body
from shared.jobs import FeedWindow, Job, JobCapacity, JobSpec
from shared.messages import EMBED, Body, NewEntry, Options, Vectors
from tests.integration.worker.worker_cluster import WorkerCluster, hash_vectors
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]

ROOM = JobCapacity(1_000_000, 1_600, 0.9)
PER_ENTRY = 8
SLOW = "simulated:base_ms=20,item_ms=0"


async def made(cluster: WorkerCluster, texts: list[str], options: dict[int, Options] | None = None) -> str:
    """Makes a job; `options` are those of entries, by position."""
    job_id = secrets.token_hex(16)
    new_entries = []
    for start in range(0, len(texts), PER_ENTRY):
        part = tuple(texts[start : start + PER_ENTRY])
        body = Body(EMBED, part, (options or {}).get(start, Options()))
        new_entries.append(NewEntry(start, len(part), 4 * len(part), encode_body(body)))
    for start in range(0, len(new_entries), 200):
        await jobs.upload(cluster.connection, cluster.keys, job_id, new_entries[start : start + 200])
    making = JobSpec(job_id, len(new_entries), 0, len(texts), PER_ENTRY)
    assert (await jobs.create(cluster.connection, cluster.keys, making, ROOM, FeedWindow(4, 10**9))).status == "ok"
    return job_id


async def ended(cluster: WorkerCluster, job_id: str, timeout_s: float = 60.0) -> Job:
    """Waits until a job has ended."""
    found: list[Job] = []

    async def has_ended() -> bool:
        job = await jobs.find(cluster.connection, cluster.keys, job_id)
        if job is not None and job.ended:
            found.append(job)
        return bool(found)

    await wait_until(has_ended, "the job ends", timeout_s=timeout_s)
    return found[0]


async def check(cluster: WorkerCluster, job: Job, texts: list[str]) -> None:
    """Sees that each text of a job has its own vector, in order."""
    for start in range(0, job.n, 1_000):
        stop = min(job.n, start + 1_000)
        for reply in await jobs.replies(cluster.connection, cluster.keys, job, start, stop):
            assert isinstance(reply, Vectors)
            found = np.frombuffer(reply.data, dtype="<f4").reshape(reply.n, reply.dim)
            assert np.array_equal(found, hash_vectors(texts[reply.position : reply.position + reply.n]))


async def test_the_lanes_are_fed_until_a_job_is_done(cluster: WorkerCluster) -> None:
    """Far more than fits; all of it is answered, and little of it was in the lane at a time."""
    texts = [f"text {i}" for i in range(20_000)]
    job_id = await made(cluster, texts)
    await cluster.start_worker()
    depths: list[int] = []

    async def watch() -> None:
        while True:
            depths.append(await cluster.raw.xlen(cluster.keys.lanes[1]))
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    job = await ended(cluster, job_id)
    watching.cancel()
    assert (job.status, job.done) == ("done", 20_000)
    assert 0 < max(depths) <= jobs.MAX_ENTRIES
    await check(cluster, job, texts)


async def test_a_job_survives_the_worker_that_runs_it(cluster: WorkerCluster) -> None:
    """Killed in the middle: another goes on, and each input counts once."""
    texts = [f"text {i}" for i in range(2_000)]
    job_id = await made(cluster, texts)
    settings: dict[str, Any] = {"reclaim_idle_ms": 500, "renew_ms": 100, "heartbeat_s": 0.2, "heartbeat_ttl_s": 1.0}
    first = await cluster.start_worker(SLOW, **settings)
    await wait_until(lambda: started(cluster, job_id), "it runs")
    first.kill()
    await cluster.start_worker(SLOW, **settings)
    job = await ended(cluster, job_id)
    assert (job.status, job.done, job.failed) == ("done", 2_000, 0)
    await check(cluster, job, texts)


async def started(cluster: WorkerCluster, job_id: str) -> bool:
    """Whether some of a job has its result."""
    job = await jobs.find(cluster.connection, cluster.keys, job_id)
    return job is not None and job.done > 0


async def test_inputs_fail_one_by_one(cluster: WorkerCluster) -> None:
    """An entry that cannot be run is taken apart: what fails is told by its own index, the rest has its vectors."""
    texts = [f"text {i}" for i in range(24)]
    job_id = await made(cluster, texts, {8: Options(prompt_name="none")})
    await cluster.start_worker()
    job = await ended(cluster, job_id)
    assert (job.status, job.done, job.failed) == ("done", 16, 8)
    failures = await jobs.failures(cluster.connection, cluster.keys, job_id, 100)
    assert [(each.position, each.n, each.code) for each in failures] == [
        (at, 1, "invalid_request") for at in range(8, 16)
    ]
    found = await jobs.replies(cluster.connection, cluster.keys, job, 0, 24)
    assert [(each.position, each.n) for each in found if isinstance(each, Vectors)] == [(0, 8), (16, 8)]
