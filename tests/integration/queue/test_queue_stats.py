"""Queue stats beyond entries and workers: for metrics and alerts."""

from __future__ import annotations

import secrets
import shutil

import pytest
import redis
import redis.asyncio

from redbatch.up.local_redis import LocalRedis
from shared import consumer, job_uploads, jobs, producer
from shared.feed_window import FeedWindow
from shared.job_uploads import UploadReservation
from shared.jobs import JobCapacity, JobSpec
from shared.keys import BULK, Keys
from shared.messages import NewEntry
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway, Worker, request
from tests.servers import server_binary
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_each_lane_has_an_oldest_entry(gateway: Gateway, worker: Worker) -> None:
    """Each lane has the age of its oldest entry, so that old bulk does not make the other lane look slow."""
    (bulk,) = await gateway.add(request(lane=BULK))
    stats = await producer.queue_stats(gateway.connection, gateway.keys)
    assert stats.oldest_by_lane == (None, int(bulk.entry_id.split(b"-")[0]))
    assert stats.ages_ms == (0, stats.oldest_age_ms)
    (interactive,) = await gateway.add(request())
    stats = await producer.queue_stats(gateway.connection, gateway.keys)
    assert stats.oldest_by_lane[0] == int(interactive.entry_id.split(b"-")[0])
    assert stats.oldest_age_ms == max(stats.ages_ms)
    await worker.commit(await worker.claim())


@pytest.mark.leaves_dead_letters
async def test_dead_letters_are_counted(gateway: Gateway, worker: Worker) -> None:
    """The number of dead letters is that of `redbatch dead list`."""
    await gateway.add(request(), request())
    assert await worker.give_up(await worker.claim()) == [True, True]
    assert (await producer.queue_stats(gateway.connection, gateway.keys)).dead_letters == 2


@pytest.mark.leaves_anything
async def test_open_jobs_and_what_they_are_owed(queue: QueueConnections, worker: Worker) -> None:
    """A job counts until it has ended; inputs with a result are not owed."""
    connection, keys = queue.connection("jobs"), queue.keys
    await consumer.join(worker.connection, keys)
    assert (await producer.queue_stats(connection, keys)).open_jobs == 0
    created = []
    for inputs in (2, 3):
        job_id = secrets.token_hex(16)
        await job_uploads.upload(
            connection, keys, UploadReservation(job_id, inputs), [NewEntry(0, inputs, 10, b"body")]
        )
        spec = JobSpec(job_id, 1, 0, inputs, 32, "ann", "ann")
        created.append(await jobs.create(connection, keys, spec, JobCapacity(1_600, 0.9), FeedWindow(8, 10**9)))
    stats = await producer.queue_stats(connection, keys)
    assert (stats.open_jobs, stats.owed_inputs) == (2, 5)
    assert await jobs.cancel(connection, keys, created[0].job_id) == "queued"
    stats = await producer.queue_stats(connection, keys)
    assert (stats.open_jobs, stats.owed_inputs) == (1, 3)


async def test_a_redis_that_cannot_write_is_reported(queue_name: str) -> None:
    """After Redis' folder was deleted the next snapshot fails, and the stats report it."""
    with LocalRedis(server_binary()) as server, redis.Redis.from_url(server.url, protocol=2) as client:
        queue = QueueConnections(QueueSettings(redis_url=server.url), queue_name, "test")
        connection = queue.connection("look")

        async def persists() -> bool:
            return (await producer.queue_stats(connection, Keys(queue_name))).persists

        assert await persists()
        assert server.directory is not None
        shutil.rmtree(server.directory)
        client.bgsave()

        async def fails() -> bool:
            return not await persists()

        await wait_until(fails, "the stats report a failed snapshot")
        await queue.close()


async def test_the_stats_report_the_memory_of_redis(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """The stats report the memory of Redis in bytes, even without a maxmemory for a ratio."""
    stats = await producer.queue_stats(queue.connection("look"), queue.keys)
    used_memory = (await raw.info("memory"))["used_memory"]
    assert used_memory * 0.8 < stats.memory_bytes < used_memory * 1.2
    assert stats.memory_ratio == 0
