"""What a gateway reads of a queue's workers when an answer needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from api.dialects.request import Labels
from api.served_queue import ServedQueue
from api.settings import GatewaySettings
from shared import consumer
from shared.messages import (
    CLASSIFIER_OPS,
    LOADING,
    MULTI_VECTOR_OPS,
    READY,
    RERANKER_OPS,
    SIGMOID,
    SOFTMAX,
    Heartbeat,
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
