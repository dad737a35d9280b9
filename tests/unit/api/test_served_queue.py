"""What a gateway reads of a queue's workers when an answer needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.dialects.request import Labels
from api.served_queue import ServedQueue
from api.settings import GatewaySettings
from shared import consumer
from shared.messages import CLASSIFIER_OPS, LOADING, READY, Heartbeat
from shared.queue_connections import QueueConnections
from shared.usage_counts import UsageCounts

pytestmark = pytest.mark.redis


async def test_the_labels_of_a_worker_that_became_ready_after_the_last_poll(
    redis_url: str, queue: QueueConnections
) -> None:
    """They are found at once; and they stay known for the answers of a worker that has left since."""
    connection = queue.connection("ghost")
    beat = Heartbeat("ghost", "host", 1, "cpu", "m", 0, LOADING, 0.0, 0, 0, 0, ops=CLASSIFIER_OPS)
    await consumer.heartbeat(connection, queue.keys, beat, 60_000)
    served = ServedQueue(GatewaySettings(redis_url=redis_url), queue.keys.queue, UsageCounts())
    await served.start()
    try:
        assert await served.find_labels() == Labels()
        ready = replace(beat, dim=2, state=READY, labels=("no", "yes"), activation="softmax")
        await consumer.heartbeat(connection, queue.keys, ready, 60_000)
        assert await served.find_labels() == Labels(("no", "yes"), "softmax")
        await consumer.leave(connection, queue.keys, "ghost")
        assert await served.find_labels() == Labels(("no", "yes"), "softmax")
    finally:
        await served.stop()
