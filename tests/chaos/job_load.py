"""Clients that submit jobs over HTTP while faults are injected, and fetch the result of each."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests import plain_http
from tests.chaos.history import FOREIGN, OK, Call
from tests.integration.gateway.gateway_cluster import null_vector, vector_bytes

TIMEOUT_S = 60.0
"""A job that has not ended after this time hangs."""

WAIT_S = 2
RETRY_S = 0.05
SIZES = (1, 5, 40, 100)
"""Numbers of texts in a job; larger jobs have several entries."""

JOB_LOST, DUPLICATE_JOB = "gone", "two jobs for one key"


@dataclass
class JobHistory:
    """The jobs that gateways have accepted.

    Attributes:
        calls: one call for each job, from its submission to its vectors.
        refusals: answers other than 202 to a submission, and connections that broke.
        lost: times (s, monotonic) at which jobs were accepted that gateways do not know any more.
    """

    calls: list[Call] = field(default_factory=list)
    refusals: int = 0
    lost: list[float] = field(default_factory=list)


class Client:
    """Submits one job after another, each with a different idempotency key, to the gateways in turn."""

    def __init__(self, urls: Sequence[str], history: JobHistory, pad: str = "") -> None:
        self._urls = urls
        self._history = history
        self._pad = pad
        self._turns = itertools.count()

    async def run(self, numbers: Iterator[int], stop: asyncio.Event) -> None:
        """Submits jobs until the event is set, and returns when the last one has ended."""
        async with plain_http.client(timeout=30) as client:
            while not stop.is_set():
                number = next(numbers)
                texts = [f"job {number} text {i}{self._pad}" for i in range(SIZES[number % len(SIZES)])]
                began = time.monotonic()
                outcome = await self._outcome(client, texts)
                self._history.calls.append(Call(texts[0], TIMEOUT_S, began, time.monotonic(), outcome))

    async def _outcome(self, client: httpx.AsyncClient, texts: list[str]) -> str:
        """Submits a job until it is accepted, once more like a client that lost the answer, and waits for its end."""
        until, key = time.monotonic() + TIMEOUT_S, uuid.uuid4().hex
        job = await self._submit(client, texts, key, until)
        if job is None:
            return "never accepted"
        accepted_at = time.monotonic()
        again = await self._submit(client, texts, key, until)
        if again is None or again["id"] != job["id"]:
            known = await self._get(client, job["status_url"], until)
            return (
                DUPLICATE_JOB if known is not None and known.status_code == httpx.codes.OK else self._lost(accepted_at)
            )
        while (answer := await self._get(client, f"{job['status_url']}?wait={WAIT_S}", until)) is not None:
            if answer.status_code == httpx.codes.NOT_FOUND:
                return self._lost(accepted_at)
            status: Any = answer.json()
            if status["status"] not in ("queued", "running"):
                return await self._compare(client, status, texts, accepted_at)
        return "hangs"

    async def _compare(self, client: httpx.AsyncClient, job: Any, texts: list[str], accepted_at: float) -> str:  # noqa: ANN401 - as JSON
        if (job["status"], job["done"], job["failed"]) != ("done", len(texts), 0):
            return f"{job['status']}, {job['failed']} of {len(texts)} failed"
        page = await self._get(client, job["result_url"], time.monotonic() + TIMEOUT_S)
        if page is None:
            return "no result"
        if page.status_code == httpx.codes.NOT_FOUND:
            return self._lost(accepted_at)
        same = list(map(vector_bytes, page.json()["embeddings"])) == list(map(null_vector, texts))
        return OK if same else FOREIGN

    def _lost(self, accepted_at: float) -> str:
        self._history.lost.append(accepted_at)
        return JOB_LOST

    async def _submit(self, client: httpx.AsyncClient, texts: list[str], key: str, until: float) -> Any:  # noqa: ANN401 - as JSON
        """Returns the accepted job; None if no gateway accepts it in time."""
        while time.monotonic() < until:
            try:
                answer = await client.post(
                    f"{self._url()}/jobs", json={"texts": texts}, headers={"Idempotency-Key": key}
                )
            except httpx.TransportError:
                self._history.refusals += 1
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status_code == httpx.codes.ACCEPTED:
                return answer.json()
            self._history.refusals += 1
            await asyncio.sleep(RETRY_S)
        return None

    async def _get(self, client: httpx.AsyncClient, path: str, until: float) -> httpx.Response | None:
        """Returns the first answer below 500; None if there is none in time."""
        while time.monotonic() < until:
            try:
                answer = await client.get(f"{self._url()}{path}")
            except httpx.TransportError:
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                return answer
            await asyncio.sleep(RETRY_S)
        return None

    def _url(self) -> str:
        return self._urls[next(self._turns) % len(self._urls)]


@asynccontextmanager
async def submit_jobs(urls: Sequence[str], clients: int = 12, pad: str = "") -> AsyncIterator[JobHistory]:
    """Submits jobs until the end of the block; yields their history, which is complete after the block.

    `urls` may change meanwhile. `pad` makes every text longer.
    """
    history, stop, numbers = JobHistory(), asyncio.Event(), itertools.count()
    tasks = [asyncio.create_task(Client(urls, history, pad).run(numbers, stop)) for _ in range(clients)]
    try:
        yield history
    finally:
        stop.set()
        await asyncio.gather(*tasks)
