"""The results stream carries the results of jobs that ended, or links to them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shared import consumer, jobs
from shared.codec import encode_reply
from shared.consumer import ClaimBudget, CommitOptions, EntryAnswer
from shared.job_uploads import UploadReservation
from shared.jobs import JobSpec
from shared.messages import EMBED_ALL, NO_RESULTS, PREDICT, Entry, Failure, Reply, Values, Vectors
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import GRACE_MS, Worker
from tests.integration.queue.job_client import PER_ENTRY, JobClient
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

DIM = 3


@pytest.fixture
def job_client(queue: QueueConnections, worker_queue: QueueConnections) -> JobClient:
    """A client that creates jobs."""
    return JobClient(queue.connection("jobs"), worker_queue.connection("feed"), queue.keys)


def values_of(entry: Entry, value: str = '{"a":"é%d"}') -> Reply:
    """Returns a function's outputs for an entry: JSON that names the index of the input."""
    values = tuple((value % (entry.position + i)).encode() for i in range(entry.ref.n))
    return Values(entry.request_id, entry.position, entry.ref.n, values)


def vectors_of(entry: Entry) -> Reply:
    """Returns vectors for an entry."""
    data = np.arange(entry.position * DIM, (entry.position + entry.ref.n) * DIM, dtype="<f4").tobytes()
    return Vectors(entry.request_id, entry.position, entry.ref.n, DIM, data)


def failure_of(entry: Entry) -> Reply:
    """Returns an error for an entry, with characters that JSON escapes."""
    return Failure(entry.request_id, entry.position, entry.ref.n, "input_failed", 'no "é"\n')


async def end(
    client: JobClient,
    worker: Worker,
    *replies: Callable[[Entry], Reply],
    **fields: Any,  # noqa: ANN401 - fields of JobSpec
) -> dict[str, bytes]:
    """Creates a job with an entry for each of these replies, answers them, the last first; returns its stream entry."""
    job_id = await client.create_job(PER_ENTRY * len(replies), **fields)
    claimed = await consumer.claim(worker.connection, worker.keys, worker.name, ClaimBudget(256, 10**9, 1, 0))
    answers = [(entry, reply(entry)) for entry, reply in zip(claimed.entries, replies, strict=True)]
    rows = [
        EntryAnswer(entry, encode_reply(reply), failed=isinstance(reply, Failure)) for entry, reply in answers[::-1]
    ]
    await consumer.commit(worker.connection, worker.keys, rows, CommitOptions(worker.name, GRACE_MS))
    return await last(client, job_id)


async def last(client: JobClient, job_id: str) -> dict[str, bytes]:
    """Returns the last entry of the stream, which must be of this job, without id and counts."""
    *_, newest = await client.connection.call("XRANGE", client.keys.results, "-", "+")
    fields = {name.decode(): value for name, value in zip(newest[1][::2], newest[1][1::2], strict=True)}
    assert fields["id"].decode() == job_id
    return {name: value for name, value in fields.items() if name not in ("id", "n", "done", "failed", "status")}


async def test_outputs_are_inline(job_client: JobClient, worker: Worker) -> None:
    """Outputs are one JSON array in the order of the inputs, with null for failed ones, whose errors are named."""
    fields = await end(job_client, worker, values_of, failure_of, values_of, op=PREDICT, max_inline_bytes=65_536)
    expected = [{"a": f"é{i}"} for i in range(12)]
    expected[4:8] = [None] * 4  # type: ignore[list-item]
    assert json.loads(fields["outputs"]) == expected
    errors = [{"index": i, "code": "input_failed", "message": 'no "é"\n'} for i in range(4, 8)]
    assert json.loads(fields["errors"]) == errors
    assert set(fields) == {"op", "owner", "outputs", "errors"}
    none = await end(job_client, worker, failure_of, op=PREDICT, max_inline_bytes=65_536)
    assert (json.loads(none["outputs"]), len(json.loads(none["errors"]))) == ([None] * 4, 4)


async def test_vectors_are_inline(job_client: JobClient, worker: Worker) -> None:
    """Vectors are float32 in rows of `dim`, with NaN for failed inputs."""
    fields = await end(job_client, worker, failure_of, vectors_of, vectors_of, max_inline_bytes=65_536)
    assert int(fields["dim"]) == DIM
    rows = np.frombuffer(fields["embeddings"], dtype="<f4").reshape(-1, DIM)
    assert np.isnan(rows[:4]).all()
    assert rows[4:].tolist() == np.arange(12, 36).reshape(-1, DIM).tolist()
    assert [each["index"] for each in json.loads(fields["errors"])] == [0, 1, 2, 3]
    none = await end(job_client, worker, failure_of, max_inline_bytes=65_536)
    assert (none["embeddings"], none["dim"]) == (b"", b"0")


async def test_inputs_that_were_cut_are_listed(job_client: JobClient, worker: Worker) -> None:
    """`truncated` has their indices in the job; it is absent if there are none."""

    def cut(entry: Entry) -> Reply:
        reply = vectors_of(entry)
        assert isinstance(reply, Vectors)
        return reply._replace(truncated=(0, 3), revision="r", tokens=(1,) * entry.ref.n)

    fields = await end(job_client, worker, failure_of, cut, vectors_of, cut, max_inline_bytes=65_536)
    assert json.loads(fields["truncated"]) == [4, 7, 12, 15]
    assert "truncated" not in await end(job_client, worker, vectors_of, max_inline_bytes=65_536)


async def test_values_of_any_length_are_inline(job_client: JobClient, worker: Worker) -> None:
    """Short and long values, and entries of few and many inputs, come back unchanged."""
    lengths = [0, 31, 32, 255, 256, 65_535, 65_536]
    values = [json.dumps("x" * length).encode() for length in lengths]
    values += [b"%d" % i for i in range(1_024)]
    for n in (1, 7, 15, 16, 1_024):
        job_id = secrets.token_hex(16)
        await job_client.reserve(UploadReservation(job_id, n), [job_client.new_entry(0, n)])
        await job_client.create(JobSpec(job_id, 1, 0, n, n, op=PREDICT, max_inline_bytes=2**20))
        (entry,) = await worker.claim()
        reply = EntryAnswer(entry, encode_reply(Values(job_id, 0, n, tuple(values[:n]), tokens=(1,) * n)))
        await consumer.commit(worker.connection, worker.keys, [reply], CommitOptions(worker.name, GRACE_MS))
        outputs = json.loads((await last(job_client, job_id))["outputs"])
        assert outputs == [json.loads(value) for value in values[:n]]


@pytest.mark.parametrize("max_inline_bytes", [0, 300])
async def test_larger_results_are_a_link(job_client: JobClient, worker: Worker, max_inline_bytes: int) -> None:
    """Results that take more than the maximum are not in the stream, which has their path."""
    fields = await end(job_client, worker, values_of, values_of, op=PREDICT, max_inline_bytes=max_inline_bytes)
    assert set(fields) == {"op", "owner", "result_url"}
    (job,) = await jobs.latest(job_client.connection, job_client.keys, 1)
    assert fields["result_url"].decode() == f"/jobs/{job_client.keys.queue}.{job.job_id}/result"


async def test_errors_count_as_results(job_client: JobClient, worker: Worker) -> None:
    """An error that stands for many inputs is repeated for each: if that takes more than the maximum, it is a link."""
    fields = await end(job_client, worker, *([failure_of] * 4), op=PREDICT, max_inline_bytes=600)
    assert "result_url" in fields


async def test_without_a_payload_there_is_neither(job_client: JobClient, worker: Worker) -> None:
    """With NO_RESULTS the stream names the job and its counts alone."""
    assert set(await end(job_client, worker, values_of, op=PREDICT, max_inline_bytes=NO_RESULTS)) == {"op", "owner"}


async def test_what_is_incomplete_is_a_link(job_client: JobClient, worker: Worker) -> None:
    """An expired job, token vectors, and replies that were changed by hand are a link; a cancelled job has nothing."""
    assert "result_url" in await end(job_client, worker, vectors_of, op=EMBED_ALL, max_inline_bytes=65_536)
    expiring = await job_client.create_job(4, op=PREDICT, max_inline_bytes=65_536, timeout_ms=100)

    async def has_expired() -> bool:
        return (await job_client.feed()).expired == 1

    await wait_until(has_expired, "it expires")
    assert "result_url" in await last(job_client, expiring)
    cancelled = await job_client.create_job(4, op=PREDICT, max_inline_bytes=65_536)
    await jobs.cancel(job_client.connection, job_client.keys, cancelled)
    assert set(await last(job_client, cancelled)) == {"op", "owner"}
    broken = await job_client.create_job(8, op=PREDICT, max_inline_bytes=65_536)
    await job_client.worker_connection.call("HSET", f"{job_client.keys.job(broken)}:out", "99", b"no msgpack")
    for entry in await worker.claim():
        reply = EntryAnswer(entry, encode_reply(values_of(entry)))
        await consumer.commit(worker.connection, worker.keys, [reply], CommitOptions(worker.name, GRACE_MS))
    assert "result_url" in await last(job_client, broken)
