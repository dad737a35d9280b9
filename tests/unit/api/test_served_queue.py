"""What a gateway reads of a queue's workers when an answer needs it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from shared.messages import (
    CLASSIFIER_OPS,
    DENSE,
    EMBED_PARTS,
    LOADING,
    MULTI_VECTOR,
    MULTI_VECTOR_OPS,
    READY,
    RERANKER_OPS,
    SIGMOID,
    SOFTMAX,
    Heartbeat,
    Options,
    Values,
)
from shared.queue_connections import QueueConnections
from shared.usage_counts import UsageCounts

pytestmark = pytest.mark.redis

LOADS = Heartbeat("ghost", "host", 1, "cpu", "m", 0, LOADING, 0.0, 0, 0, 0, ops=CLASSIFIER_OPS)
CLASSIFIER = replace(LOADS, dim=2, state=READY, revision="old", labels=("no", "yes"), activation=SOFTMAX)
RERANKER = replace(CLASSIFIER, dim=1, revision="reranker", ops=RERANKER_OPS, labels=("LABEL_0",), activation=SIGMOID)
COLBERT = replace(LOADS, dim=8, state=READY, revision="colbert", ops=MULTI_VECTOR_OPS)


async def beat(queue: QueueConnections, *workers: Heartbeat) -> None:
    """Sends the heartbeats of workers."""
    for each in workers:
        await consumer.heartbeat(queue.connection("ghost"), queue.keys, each, 60_000)


@asynccontextmanager
async def served(redis_url: str, queue: QueueConnections) -> AsyncIterator[ServedQueue]:
    """Serves a queue in a gateway."""
    found = ServedQueue(GatewaySettings(redis_url=redis_url), queue.keys.queue, UsageCounts())
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


async def test_the_labels_of_a_worker_that_became_ready_after_the_last_poll(
    redis_url: str, queue: QueueConnections
) -> None:
    """They are found at once; and they stay known for the answers of a worker that has left since."""
    await beat(queue, LOADS)
    async with served(redis_url, queue) as gateway:
        assert await gateway.find_labels() == Labels()
        await beat(queue, CLASSIFIER)
        assert await gateway.find_labels() == Labels(("no", "yes"), SOFTMAX)
        await consumer.leave(queue.connection("ghost"), queue.keys, "ghost")
        for revision in ("", "old", "of nobody"):
            assert await gateway.find_labels(revision) == Labels(("no", "yes"), SOFTMAX)


async def test_the_labels_are_those_of_the_revision_that_answered(redis_url: str, queue: QueueConnections) -> None:
    """Also of one that became ready after the last poll; those of any other are better than none."""
    await beat(queue, CLASSIFIER)
    async with served(redis_url, queue) as gateway:
        assert await gateway.find_labels("old") == Labels(("no", "yes"), SOFTMAX)
        await beat(queue, replace(CLASSIFIER, worker="other", revision="new", labels=("yes", "no")))
        for revision, names in (("new", ("yes", "no")), ("old", ("no", "yes"))):
            assert await gateway.find_labels(revision) == Labels(names, SOFTMAX)
        assert set((await gateway.find_labels("of nobody")).names) == {"no", "yes"}


async def test_the_operations_are_those_of_the_revision_that_answered(redis_url: str, queue: QueueConnections) -> None:
    """A worker that loads a model of the hub does not know them; its first answers come before the next poll."""
    await beat(queue, replace(LOADS, ops=()))
    async with served(redis_url, queue) as gateway:
        assert await gateway.find_ops() == frozenset()
        await beat(queue, COLBERT)
        assert await gateway.find_ops("colbert") == set(MULTI_VECTOR_OPS)
        await beat(queue, replace(RERANKER, worker="other"))
        assert await gateway.find_ops("reranker") == set(RERANKER_OPS)
        assert await gateway.find_ops("of nobody") == await gateway.find_ops() == {*MULTI_VECTOR_OPS, *RERANKER_OPS}


async def test_the_ranges_of_int8_are_those_of_the_workers_that_made_the_vectors(
    redis_url: str, queue: QueueConnections
) -> None:
    """Also of parts, whose replies are no vectors. Of fewer dimensions there are none: no worker computes these."""
    ranges = np.array([[0, 0], [1, 1]], dtype="<f4").tobytes()
    expected = {"one": b"", "two": ranges, "three": 2 * ranges[:8]}
    workers = [replace(CLASSIFIER, worker=name, revision=name) for name in expected]
    encoded = [b64encode(each).decode() for each in expected.values()]
    await beat(queue, *(replace(each, int8_ranges=text) for each, text in zip(workers, encoded, strict=True)))
    async with served(redis_url, queue) as gateway:
        for name, found in expected.items():
            result = InferenceResult([Values("", 0, 1, (b"",), revision=name)])
            assert await gateway.find_int8_ranges(result) == found
        cut = InferenceRequest(("a",), 50, options=Options(dimensions=1), output_types=("int8",))
        parts = cut._replace(op=EMBED_PARTS, parts=(DENSE, MULTI_VECTOR))
        assert [each.needs_model for each in (cut, parts, cut._replace(output_types=("float",)))] == [True, True, False]
        for request in (cut, parts):
            with (
                HeldMemory(MemoryBudget(2**20), ShareHolder("")) as memory,
                pytest.raises(InvalidRequestError, match="dimensions: int8 and uint8 of this model have ranges for"),
            ):
                await gateway.answer_by_model(request, "", memory)
