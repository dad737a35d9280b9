"""Results of jobs are read in turns: many downloads of a tenant delay another one's by a few portions."""

from __future__ import annotations

import asyncio
import secrets

import numpy as np
import orjson
import pytest

from api.fair_lock import FairLock
from api.http.client_connection import ClientConnection
from api.jobs.result_form import ResultForm
from api.jobs.results import PORTION_BYTES, JobResults
from api.jobs.store import JobStore
from api.tenants import ShareHolder
from shared.codec import encode_reply
from shared.jobs import Job
from shared.messages import Vectors
from shared.queue_connections import QueueConnections
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis]

DOWNLOADS, PORTIONS = 50, 8
DIM, PER_ENTRY = 4_096, 32
INPUTS = PORTIONS * PORTION_BYTES // (4 * DIM)
VECTORS = ResultForm("embeddings")


async def store_job(store: JobStore, inputs: int) -> Job:
    """Stores the results of a job that has ended."""
    job = Job(secrets.token_hex(16), "done", "", 0, inputs, inputs, 0, PER_ENTRY, 0, 0, 0)
    for start in range(0, inputs, PER_ENTRY):
        n = min(PER_ENTRY, inputs - start)
        vectors = np.full((n, DIM), float(start), dtype="<f4").tobytes()
        reply = encode_reply(Vectors(job.job_id, start, n, DIM, vectors))
        await store.connection.call("HSET", f"{store.keys.job(job.job_id)}:out", start, reply)
    return job


@pytest.mark.leaves_anything
async def test_many_downloads_delay_another_page_by_a_few_portions(queue: QueueConnections) -> None:
    """While 50 downloads of one tenant wait, three pages of another one come after two portions each."""
    store, lock = JobStore(queue), FairLock()
    job, small = await store_job(store, INPUTS), await store_job(store, 10)
    num_portions, other = 0, ShareHolder("other")

    async def download() -> None:
        nonlocal num_portions
        read = JobResults(store, job, VECTORS, ClientConnection(), lock, ShareHolder("greedy"))
        async for _ in read.iter_npy(DIM, range(job.n)):
            num_portions += 1

    downloads = [asyncio.create_task(download()) for _ in range(DOWNLOADS)]
    await wait_until(lambda: num_portions > 0, "the downloads have begun")
    for _ in range(3):
        before = num_portions
        page = await JobResults(store, small, VECTORS, ClientConnection(), lock, other).json_page("x", 0, 10)
        assert len(orjson.loads(page)["embeddings"]) == 10
        assert num_portions - before <= 2
    await asyncio.gather(*downloads)
    assert num_portions == DOWNLOADS * PORTIONS
