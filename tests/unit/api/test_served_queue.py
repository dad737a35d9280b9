"""What a gateway reads of a queue's workers when an answer needs it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest

from api.dialects.request import InferenceRequest, InferenceResult, Labels
from api.memory_budget import HeldMemory, MemoryBudget
from api.served_queue import ServedQueue
from api.settings import GatewaySettings
from api.tenants import ShareHolder
from shared import consumer
from shared.errors import InvalidRequestError
from shared.messages import CLASSIFIER_OPS, DENSE, EMBED_PARTS, LOADING, MULTI_VECTOR, READY, Heartbeat, Options, Values
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


async def test_the_ranges_of_int8_are_those_of_the_workers_that_made_the_vectors(
    redis_url: str, queue: QueueConnections
) -> None:
    """Also of parts, whose replies are no vectors. Of fewer dimensions there are none: no worker computes these."""
    connection, ranges = queue.connection("ghost"), np.array([[0, 0], [1, 1]], dtype="<f4").tobytes()
    for name, of_worker in (("one", b""), ("two", ranges), ("three", 2 * ranges[:8])):
        beat = Heartbeat(name, "host", 1, "cpu", "m", 2, READY, 0.0, 0, 0, 0, revision=name)
        beat = replace(beat, int8_ranges=b64encode(of_worker).decode())
        await consumer.heartbeat(connection, queue.keys, beat, 60_000)
    served = ServedQueue(GatewaySettings(redis_url=redis_url), queue.keys.queue)
    await served.start()
    try:
        for name, expected in (("one", b""), ("two", ranges), ("three", 2 * ranges[:8])):
            result = InferenceResult([Values("", 0, 1, (b"",), revision=name)])
            assert await served.find_int8_ranges(result) == expected
        cut = InferenceRequest(("a",), 50, options=Options(dimensions=1), output_types=("int8",))
        parts = cut._replace(op=EMBED_PARTS, parts=(DENSE, MULTI_VECTOR))
        assert [each.needs_model for each in (cut, parts, cut._replace(output_types=("float",)))] == [True, True, False]
        for request in (cut, parts):
            with (
                HeldMemory(MemoryBudget(2**20), ShareHolder("")) as memory,
                pytest.raises(InvalidRequestError, match="dimensions: int8 and uint8 of this model have ranges for"),
            ):
                await served.answer_by_model(request, "", memory)
    finally:
        await served.stop()
