"""A worker without a model, which answers an entry as a test says: with errors that no model here raises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import httpx
import numpy as np

from shared import consumer
from shared.codec import encode_reply
from shared.consumer import CommitOptions, EntryAnswer
from shared.messages import CLASSIFY, FAILING, READY, SCORE, Entry, Failure, Heartbeat, TooLong, Vectors
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.integration.clients.error_cases import LONG, QUEUE, REQUEST_ID, TEXT_BODIES
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.queue.actors import Worker
from tests.waiting import wait_until

T = TypeVar("T")
TTL_MS = 300_000
NAN = Vectors("", 0, 1, 1, np.float32("nan").tobytes())
"""The score of one text."""


class FakeWorker:
    """A worker of a reranker, as its heartbeats say.

    Args:
        queue: that it serves.
        more_ops: operations that it offers beside those of a reranker.

    Attributes:
        queue: its name.
    """

    def __init__(self, queue: QueueConnections, more_ops: tuple[str, ...] = ()) -> None:
        self._ops = (SCORE, CLASSIFY, *more_ops)
        self._worker = Worker(queue.connection("fake"), queue.keys, "fake")
        self.queue = queue.keys.queue

    async def join(self) -> None:
        """Becomes ready, and announces its queue to gateways."""
        await consumer.join(self._worker.connection, self._worker.keys)
        await self.beat()
        await consumer.announce(self._worker.connection, self._worker.keys)

    async def beat(self, failing: str = "") -> None:
        """Sends a heartbeat; `failing` is the exception with which all batches fail, if they do."""
        name, state = self._worker.name, FAILING if failing else READY
        beat = Heartbeat(name, "host", 1, "cpu", "fake", 1, state, 0.0, 0, 0, 0, ops=self._ops)
        beat = replace(beat, labels=("LABEL_0",), activation="sigmoid", failing=failing, retry_s=1.0, prompts=())
        await consumer.heartbeat(self._worker.connection, self._worker.keys, beat, TTL_MS)

    async def leave(self) -> None:
        """Leaves the group, and withdraws its queue."""
        await self._worker.leave()
        await consumer.withdraw(self._worker.connection, self._worker.keys)

    async def post(self, gateway: GatewayProcess, path: str, **headers: str) -> httpx.Response:
        """Posts the body of one text of a route to this queue."""
        body = json.loads(json.dumps(TEXT_BODIES[path]).replace(QUEUE, self.queue))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"x-model": self.queue, "x-request-id": REQUEST_ID}
        return await asyncio.to_thread(plain_http.post, gateway.url + path, json=body, headers=named, timeout=60)

    async def answer(self, gateway: GatewayProcess, path: str, sent: Failure | Vectors) -> httpx.Response:
        """Posts the body of one text of a route, and answers its entry."""
        call = asyncio.create_task(self.post(gateway, path))
        entries: list[Entry] = []

        async def has_claimed() -> bool:
            entries.extend(await self._worker.claim())
            return bool(entries) or call.done()

        await wait_until(has_claimed, "the entry is claimed")
        await self._commit(entries, sent)
        return await call

    async def refuse_until(self, call: asyncio.Task[T], refusal: Failure) -> T:
        """Answers all entries with a failure, until a call is done; returns what it returns."""

        async def is_done() -> bool:
            await self._commit(await self._worker.claim(), refusal)
            return call.done()

        await wait_until(is_done, "the call is done", timeout_s=300)
        return await call

    async def _commit(self, entries: Iterable[Entry], sent: Failure | Vectors) -> None:
        for entry in entries:
            reply = sent._replace(request_id=entry.request_id, position=entry.position, n=entry.ref.n)
            options = CommitOptions(self._worker.name, TTL_MS)
            answers = [EntryAnswer(entry, encode_reply(reply))]
            await consumer.commit(self._worker.connection, self._worker.keys, answers, options)


def failure(code: str, message: str) -> Failure:
    """Returns a failure of an entry with one input."""
    return Failure("", 0, 1, code, message)


TOO_LONG = failure("invalid_request", LONG)._replace(too_long=TooLong(733, 512))
"""Of an input that a model refuses because of its length."""
