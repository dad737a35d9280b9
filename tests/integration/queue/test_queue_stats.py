"""What the pulse tells beyond entries and workers: for metrics, and those who are woken by them."""

from __future__ import annotations

import secrets
import shutil

import pytest
import redis
import redis.asyncio

from redbatch.up.local_redis import LocalRedis
from shared import consumer, jobs, producer
from shared.connection import QueueConnections
from shared.jobs import FeedWindow, JobCapacity, JobSpec
from shared.keys import BULK, Keys
from shared.messages import NewEntry
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway, Worker, request
from tests.servers import server_binary
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_each_lane_has_an_oldest_entry(gateway: Gateway, worker: Worker) -> None:
    """Bulk may wait long, and nobody takes the other lane for slow because of that; both count where one is told."""
    (bulk,) = await gateway.add(request(lane=BULK))
    shown = await producer.queue_stats(gateway.connection, gateway.keys)
    assert shown.oldest_by_lane == (None, int(bulk.entry_id.split(b"-")[0]))
    assert shown.ages_ms == (0, shown.oldest_age_ms)
    (interactive,) = await gateway.add(request())
    shown = await producer.queue_stats(gateway.connection, gateway.keys)
    assert shown.oldest_by_lane[0] == int(interactive.entry_id.split(b"-")[0])
    assert shown.oldest_age_ms == max(shown.ages_ms)
    await worker.commit(await worker.claim())


@pytest.mark.leaves_dead_letters
async def test_dead_letters_are_counted(gateway: Gateway, worker: Worker) -> None:
    """Those that are kept, as `redbatch dead list` shows them."""
    await gateway.add(request(), request())
    assert await worker.give_up(await worker.claim()) == [True, True]
    assert (await producer.queue_stats(gateway.connection, gateway.keys)).dead_letters == 2


@pytest.mark.leaves_anything
async def test_open_jobs_and_what_they_are_owed(queue: QueueConnections, worker: Worker) -> None:
    """Until they have ended; what has a result is not owed."""
    connection, keys = queue.connection("office"), queue.keys
    await consumer.join(worker.connection, keys)
    assert (await producer.queue_stats(connection, keys)).open_jobs == 0
    made = []
    for inputs in (2, 3):
        job_id = secrets.token_hex(16)
        await jobs.upload(connection, keys, job_id, [NewEntry(0, inputs, 10, b"body")])
        making = JobSpec(job_id, 1, 0, inputs, 32, "ann", "ann")
        made.append(await jobs.create(connection, keys, making, JobCapacity(100, 1_600, 0.9), FeedWindow(8, 10**9)))
    shown = await producer.queue_stats(connection, keys)
    assert (shown.open_jobs, shown.owed_inputs) == (2, 5)
    assert await jobs.cancel(connection, keys, made[0].job_id) == "queued"
    shown = await producer.queue_stats(connection, keys)
    assert (shown.open_jobs, shown.owed_inputs) == (1, 3)


async def test_a_redis_that_cannot_write_says_so(queue_name: str) -> None:
    """Its folder has gone: the next snapshot fails, and with that the pulse tells it."""
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

        await wait_until(fails, "the pulse tells that a snapshot failed")
        await queue.close()


async def test_the_pulse_tells_what_redis_uses(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """In bytes, also where there is no maxmemory of which it could be a share."""
    shown = await producer.queue_stats(queue.connection("look"), queue.keys)
    told = (await raw.info("memory"))["used_memory"]
    assert told * 0.8 < shown.memory_bytes < told * 1.2
    assert shown.memory_ratio == 0
