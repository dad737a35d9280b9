"""Clients that submit jobs over HTTP as long as the harm lasts, and fetch what comes of each."""

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
from tests.integration.gateway.house import digits, digits_of

PATIENCE_S = 60.0
"""A job that has not ended by then hangs."""

WAIT_S = 2
AGAIN_S = 0.05
SIZES = (1, 5, 40, 100)
"""Texts in a job; the larger ones have several entries."""

GONE, TWICE = "gone", "two jobs for one key"


@dataclass
class Submitted:
    """The jobs that clients have been told of.

    Attributes:
        calls: each job from its submission to its vectors.
        refusals: answers other than 202 to a submission, and connections that broke.
        lost: when jobs were taken (s, monotonic) that nobody knows any more.
    """

    calls: list[Call] = field(default_factory=list)
    refusals: int = 0
    lost: list[float] = field(default_factory=list)


class Client:
    """Submits one job after the other, each with a key of its own, to gateways in turn."""

    def __init__(self, urls: Sequence[str], submitted: Submitted, pad: str = "") -> None:
        self._urls = urls
        self._submitted = submitted
        self._pad = pad
        self._turns = itertools.count()

    async def run(self, numbers: Iterator[int], over: asyncio.Event) -> None:
        """Works until told that it is over, and until the last job has ended."""
        async with plain_http.client(timeout=30) as client:
            while not over.is_set():
                number = next(numbers)
                texts = [f"job {number} text {i}{self._pad}" for i in range(SIZES[number % len(SIZES)])]
                began = time.monotonic()
                outcome = await self._outcome(client, texts)
                self._submitted.calls.append(Call(texts[0], PATIENCE_S, began, time.monotonic(), outcome))

    async def _outcome(self, client: httpx.AsyncClient, texts: list[str]) -> str:
        """Submits a job until it is taken, then once more as whoever lost the answer would, and sees it to its end."""
        until, key = time.monotonic() + PATIENCE_S, uuid.uuid4().hex
        job = await self._submit(client, texts, key, until)
        if job is None:
            return "never taken"
        taken = time.monotonic()
        again = await self._submit(client, texts, key, until)
        if again is None or again["id"] != job["id"]:
            known = await self._ask(client, job["status_url"], until)
            return TWICE if known is not None and known.status_code == httpx.codes.OK else self._gone(taken)
        while (told := await self._ask(client, f"{job['status_url']}?wait={WAIT_S}", until)) is not None:
            if told.status_code == httpx.codes.NOT_FOUND:
                return self._gone(taken)
            found: Any = told.json()
            if found["status"] not in ("queued", "running"):
                return await self._compare(client, found, texts, taken)
        return "hangs"

    async def _compare(self, client: httpx.AsyncClient, job: Any, texts: list[str], taken: float) -> str:  # noqa: ANN401 - as JSON
        if (job["status"], job["done"], job["failed"]) != ("done", len(texts), 0):
            return f"{job['status']}, {job['failed']} of {len(texts)} failed"
        page = await self._ask(client, job["result_url"], time.monotonic() + PATIENCE_S)
        if page is None:
            return "no result"
        if page.status_code == httpx.codes.NOT_FOUND:
            return self._gone(taken)
        same = list(map(digits, page.json()["embeddings"])) == list(map(digits_of, texts))
        return OK if same else FOREIGN

    def _gone(self, taken: float) -> str:
        self._submitted.lost.append(taken)
        return GONE

    async def _submit(self, client: httpx.AsyncClient, texts: list[str], key: str, until: float) -> Any:  # noqa: ANN401 - as JSON
        """Returns what is told of a job as soon as it is taken; None when it is not, in time."""
        while time.monotonic() < until:
            try:
                answer = await client.post(
                    f"{self._url()}/jobs", json={"texts": texts}, headers={"Idempotency-Key": key}
                )
            except httpx.TransportError:
                self._submitted.refusals += 1
                await asyncio.sleep(AGAIN_S)
                continue
            if answer.status_code == httpx.codes.ACCEPTED:
                return answer.json()
            self._submitted.refusals += 1
            await asyncio.sleep(AGAIN_S)
        return None

    async def _ask(self, client: httpx.AsyncClient, path: str, until: float) -> httpx.Response | None:
        """Returns the first answer that is none of a gateway or a Redis in need; None when there is none in time."""
        while time.monotonic() < until:
            try:
                answer = await client.get(f"{self._url()}{path}")
            except httpx.TransportError:
                await asyncio.sleep(AGAIN_S)
                continue
            if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                return answer
            await asyncio.sleep(AGAIN_S)
        return None

    def _url(self) -> str:
        return self._urls[next(self._turns) % len(self._urls)]


@asynccontextmanager
async def jobs(urls: Sequence[str], clients: int = 12, pad: str = "") -> AsyncIterator[Submitted]:
    """Submits jobs until the end of the block; yields what comes of them, which is all there after it.

    `urls` may be changed meanwhile. `pad` makes every text longer.
    """
    submitted, over, numbers = Submitted(), asyncio.Event(), itertools.count()
    working = [asyncio.create_task(Client(urls, submitted, pad).run(numbers, over)) for _ in range(clients)]
    try:
        yield submitted
    finally:
        over.set()
        await asyncio.gather(*working)
