"""Clients whose answers are compared with the vectors of their texts, in a thread beside the scene."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests import plain_http
from tests.chaos.history import FOREIGN, OK, RESET, Call
from tests.chaos.load import concurrent_clients

CLIENTS = 8
TIMEOUT_S = float(os.environ.get("REDBATCH_TEST_ENGINE_TIMEOUT_S", "10"))
"""Of a request. The default is that of the service."""

RESTART_TIMEOUT_S = max(20.0, TIMEOUT_S)
"""Of a request while the only worker is replaced by one that starts later: on two cores, which the nodes share with the
load, that takes 8 to 11 s."""

JOB_TIMEOUT_S = 300.0
NUM_TEXTS = 200
MIN_COSINE = 0.9999
"""Of an answer with the vector of its text, whatever the texts were with which it shared a batch."""

Vectors = NDArray[np.float32]


@dataclass
class Service:
    """Where clients send requests, and the vectors that they expect.

    Attributes:
        urls: of the gateways, or of what stands before them; requests go to them in turn. The list may change.
        headers: of each request.
        vectors: of the texts `text_of(0)`, ...; as the service answers while nothing disturbs it.
    """

    urls: list[str]
    headers: dict[str, str] = field(default_factory=dict)
    vectors: Vectors = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def post(self, path: str, body: Any) -> Any:  # noqa: ANN401 - as JSON
        """Returns the answer to a request. Raises StatusError."""
        return _content(
            plain_http.post(f"{self.urls[0]}{path}", json=body, headers=self.headers, timeout=JOB_TIMEOUT_S)
        )

    def get(self, path: str) -> Any:  # noqa: ANN401 - as JSON
        """Returns the answer to a request. Raises StatusError."""
        return _content(plain_http.get(f"{self.urls[0]}{path}", headers=self.headers, timeout=JOB_TIMEOUT_S))

    def is_ready(self) -> bool:
        """Returns whether a request is answered."""
        try:
            answer = plain_http.post(f"{self.urls[0]}/embed", json={"text": "ready?"}, headers=self.headers, timeout=30)
        except httpx.TransportError:
            return False
        return answer.is_success

    def learn_vectors(self) -> None:
        """Embeds the texts, whose vectors must all be different."""
        texts = [text_of(number) for number in range(NUM_TEXTS)]
        self.vectors = np.array(self.post("/embed", {"texts": texts, "timeout_ms": 60_000})["embeddings"], np.float32)
        cosines = self.vectors @ self.vectors.T - 2 * np.eye(NUM_TEXTS, dtype=np.float32)
        assert cosines.max() < MIN_COSINE, "two texts have one vector"

    def outcome(self, numbers: Sequence[int], embeddings: object) -> str:
        """Returns whether the vectors are those of the texts with these numbers."""
        received = np.array(embeddings, np.float32)
        expected = self.vectors[[number % NUM_TEXTS for number in numbers]]
        if received.shape != expected.shape:
            return FOREIGN
        return OK if bool((np.sum(received * expected, axis=1) > MIN_COSINE).all()) else FOREIGN


def _content(answer: httpx.Response) -> Any:  # noqa: ANN401 - as JSON
    if not answer.is_success:
        raise StatusError(answer)
    return answer.json()


def text_of(number: int) -> str:
    """Returns a text; the texts repeat after NUM_TEXTS."""
    number %= NUM_TEXTS
    return f"Sentence {number * 7919} of chapter {number} is about the number {number * number}."


@contextmanager
def load(service: Service, timeout_s: float = TIMEOUT_S) -> Iterator[list[Call]]:
    """Runs clients until the end of the block; yields their calls, which have all ended after it."""
    calls: list[Call] = []
    stop = Event()

    async def run() -> None:
        client = partial(_client, service, timeout_s, itertools.count())
        async with concurrent_clients(client, CLIENTS) as recorded:
            while not stop.is_set():  # noqa: ASYNC110 - of a thread
                await asyncio.sleep(0.05)
        calls.extend(recorded)

    thread = Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join()


async def _client(
    service: Service, timeout_s: float, numbers: Iterator[int], stop: asyncio.Event, calls: list[Call]
) -> None:
    async with plain_http.client(timeout=timeout_s + 20, headers=service.headers) as client:
        while not stop.is_set():
            number, began = next(numbers), time.monotonic()
            body = {"text": text_of(number), "timeout_ms": int(timeout_s * 1000)}
            outcome = await _outcome(client, service, number, body)
            calls.append(Call(text_of(number), timeout_s, began, time.monotonic(), outcome))


async def _outcome(client: httpx.AsyncClient, service: Service, number: int, body: dict[str, object]) -> str:
    try:
        answer = await client.post(f"{service.urls[number % len(service.urls)]}/embed", json=body)
    except httpx.TimeoutException:
        return "hangs"
    except httpx.TransportError:
        return RESET
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return f"{answer.status_code} not from a gateway"
    content: Any = answer.json()
    if answer.status_code != httpx.codes.OK:
        return f"{answer.status_code} {content['error']['code']}"
    return service.outcome([number], [content["embedding"]])


class StatusError(AssertionError):
    """The status of an answer is an error.

    Attributes:
        status: of the answer.
    """

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.status_code} {answer.text}")
        self.status = answer.status_code


class Job:
    """A job of the service."""

    def __init__(self, service: Service, inputs: int) -> None:
        """Submits a job with this number of texts."""
        self._service, self._inputs = service, inputs
        self._status_url = service.post("/jobs", {"texts": [text_of(number) for number in range(inputs)]})["status_url"]

    def wait(self) -> str:
        """Waits until it has ended; returns its outcome: `ok` if each text has its own vector."""
        until = time.monotonic() + JOB_TIMEOUT_S
        job = self._status(until)
        while job["status"] in ("queued", "running") and time.monotonic() < until:
            job = self._status(until)
        if (job["status"], job["done"]) != ("done", self._inputs):
            return f"{job['status']}: {job['done']} of {self._inputs} done, {job['failed']} failed"
        return self._service.outcome(range(self._inputs), self._service.get(job["result_url"])["embeddings"])

    def _status(self, until: float) -> Any:  # noqa: ANN401 - as JSON
        """Returns the job's status. While Redis is replaced, the answer is 503, and a client asks again."""
        while True:
            try:
                return self._service.get(f"{self._status_url}?wait=5")
            except StatusError as error:
                if error.status != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > until:
                    raise
                time.sleep(0.5)
