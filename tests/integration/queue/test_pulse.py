"""What the pulse tells beyond entries and workers: for metrics, and those who are woken by them."""

from __future__ import annotations

import secrets
import shutil

import pytest
import redis
import redis.asyncio

from redbatch.up.local_redis import LocalRedis
from shared import jobs
from shared import consumer
from shared import producer
from shared.jobs import Making, Room, Window
from shared.keys import BULK, Keys
from shared.messages import Draft
from shared.connection import Queue
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway, Worker, request
from tests.servers import server_binary
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


async def test_each_lane_has_an_oldest_entry(gateway: Gateway, worker: Worker) -> None:
    """Bulk may wait long, and nobody takes the other lane for slow because of that; both count where one is told."""
    (bulk,) = await gateway.add(request(lane=BULK))
    shown = await producer.pulse(gateway.link, gateway.keys)
    assert shown.oldest_by_lane == (None, int(bulk.entry_id.split(b"-")[0]))
    assert shown.ages_ms == (0, shown.oldest_age_ms)
    (interactive,) = await gateway.add(request())
    shown = await producer.pulse(gateway.link, gateway.keys)
    assert shown.oldest_by_lane[0] == int(interactive.entry_id.split(b"-")[0])
    assert shown.oldest_age_ms == max(shown.ages_ms)
    await worker.commit(await worker.claim())


@pytest.mark.leaves_dead_letters
async def test_dead_letters_are_counted(gateway: Gateway, worker: Worker) -> None:
    """Those that are kept, as `redbatch dead list` shows them."""
    await gateway.add(request(), request())
    assert await worker.bury(await worker.claim()) == [True, True]
    assert (await producer.pulse(gateway.link, gateway.keys)).dead_letters == 2


@pytest.mark.leaves_anything
async def test_open_jobs_and_what_they_are_owed(queue: Queue, worker: Worker) -> None:
    """Until they have ended; what has a result is not owed."""
    link, keys = queue.link("office"), queue.keys
    await consumer.join(worker.link, keys)
    assert (await producer.pulse(link, keys)).open_jobs == 0
    made = []
    for inputs in (2, 3):
        job_id = secrets.token_hex(16)
        await jobs.put(link, keys, job_id, [Draft(0, inputs, 10, b"body")])
        making = Making(job_id, 1, 0, inputs, 32, "ann", "ann")
        made.append(await jobs.make(link, keys, making, Room(100, 1_600, 0.9), Window(8, 10**9)))
    shown = await producer.pulse(link, keys)
    assert (shown.open_jobs, shown.owed_inputs) == (2, 5)
    assert await jobs.cancel(link, keys, made[0].job_id) == "queued"
    shown = await producer.pulse(link, keys)
    assert (shown.open_jobs, shown.owed_inputs) == (1, 3)


async def test_a_redis_that_cannot_write_says_so(queue_name: str) -> None:
    """Its folder has gone: the next snapshot fails, and with that the pulse tells it."""
    with LocalRedis(server_binary()) as server, redis.Redis.from_url(server.url, protocol=2) as client:
        queue = Queue(QueueSettings(redis_url=server.url), queue_name, "test")
        link = queue.link("look")

        async def persists() -> bool:
            return (await producer.pulse(link, Keys(queue_name))).persists

        assert await persists()
        assert server.directory is not None
        shutil.rmtree(server.directory)
        client.bgsave()

        async def fails() -> bool:
            return not await persists()

        await wait_until(fails, "the pulse tells that a snapshot failed")
        await queue.close()


async def test_the_pulse_tells_what_redis_uses(queue: Queue, raw: redis.asyncio.Redis) -> None:
    """In bytes, also where there is no maxmemory of which it could be a share."""
    shown = await producer.pulse(queue.link("look"), queue.keys)
    told = (await raw.info("memory"))["used_memory"]
    assert told * 0.8 < shown.memory_bytes < told * 1.2
    assert shown.memory_ratio == 0
