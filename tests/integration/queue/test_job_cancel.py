"""Jobs that operators cancel at the console: what becomes of one that ends meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from api.console.actions import QueueActions
from shared import consumer, jobs
from shared.codec import encode_reply
from shared.consumer import ClaimBudget, CommitOptions, EntryAnswer
from shared.errors import InvalidRequestError, JobNotFoundError, RedisUnreachableError
from shared.job_ids import format_public_id
from shared.jobs import Job
from shared.messages import Vectors
from shared.queue_connections import QueueConnections
from shared.shard_connections import connect_shards
from tests.integration.queue.actors import GRACE_MS, Worker
from tests.integration.queue.job_client import JobClient

pytestmark = pytest.mark.redis


@pytest_asyncio.fixture
async def job_client(queue: QueueConnections, worker_queue: QueueConnections) -> AsyncIterator[JobClient]:
    """A client that creates jobs; these end after the test."""
    client = JobClient(queue.connection("jobs"), worker_queue.connection("feed"), queue.keys)
    yield client
    for each in await jobs.latest(client.connection, client.keys, 100):
        await jobs.cancel(client.connection, client.keys, each.job_id)


@pytest.fixture
def actions(queue: QueueConnections) -> QueueActions:
    """What the console does, in the queue of the test."""
    return QueueActions(connect_shards([queue], "console"), ())


async def create_done_job(job_client: JobClient, worker: Worker) -> str:
    """Returns the id of a job of one input, which is done."""
    job_id = await job_client.create_job(1)
    claimed = await consumer.claim(worker.connection, worker.keys, worker.name, ClaimBudget(8, 10**9, 1, 0))
    (entry,) = claimed.entries
    reply = encode_reply(Vectors(entry.request_id, entry.position, 1, 1, b"\0\0\0\0"))
    options = CommitOptions(worker.name, GRACE_MS)
    assert await consumer.commit(worker.connection, worker.keys, [EntryAnswer(entry, reply)], options) == [True]
    return job_id


async def test_a_job_that_ends_while_it_is_cancelled_keeps_its_results(
    job_client: JobClient, worker: Worker, actions: QueueActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found running, so the operator has not agreed to delete its results."""
    job_id = await create_done_job(job_client, worker)
    public_id = format_public_id(job_client.keys.queue, job_id)
    done = await job_client.job(job_id)

    async def find_running(*_: object) -> Job:
        return replace(done, status="running")

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "find", find_running)
        with pytest.raises(InvalidRequestError, match="This job is done: to delete its results, send delete_results"):
            await actions.cancel(public_id, delete_results=False)
    assert await job_client.numbers(await job_client.job(job_id)) == [0.0]
    job, result = await actions.cancel(public_id, delete_results=True)
    assert (job.status, result.changed) == ("deleted", True)
    assert (await job_client.job(job_id)).status == "deleted"


async def test_a_job_that_is_gone_when_it_is_cancelled_is_not_found(
    job_client: JobClient, actions: QueueActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was cancelled."""
    job_id = await job_client.create_job(1)
    known = await job_client.job(job_id)

    async def find_known(*_: object) -> Job:
        return replace(known, job_id="0" * 32)

    monkeypatch.setattr(jobs, "find", find_known)
    with pytest.raises(JobNotFoundError):
        await actions.cancel(format_public_id(job_client.keys.queue, "0" * 32), delete_results=True)


async def test_a_cancelled_job_is_known_although_redis_went_away(
    job_client: JobClient, actions: QueueActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome does not depend on the read of what is left of the job."""
    public_id = format_public_id(job_client.keys.queue, await job_client.create_job(1))
    job, result = await actions.cancel(public_id, delete_results=False)
    assert (job.status, result.changed) == ("cancelled", True)
    assert (await actions.reread_job(public_id, job)).finished_ms is not None

    async def find_nothing(*_: object) -> Any:  # noqa: ANN401 - never returns
        raise RedisUnreachableError("Redis is away.")

    monkeypatch.setattr(jobs, "find", find_nothing)
    assert await actions.reread_job(public_id, job) == job
