"""Clients beside those of tests/chaos/load.py whom a rollout could harm: with requests that take long, and a job."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx

from tests import plain_http
from tests.chaos.history import FOREIGN, OK, RESET, Call
from tests.chaos.load import concurrent_clients
from tests.integration.gateway.house import digits, digits_of

MODEL = "slow"
"""The queue of the model that they ask for."""

TIMEOUT_S = 300.0
"""The most that a client may name. What is over a tenant's share goes through the lane `bulk`, behind the job, and is
refused there as coming too late if it has but a minute."""

JOB_S = 120.0
WAIT_S = 5


class Failed(Exception):
    """An answer that no client was to get; the message says which."""


@asynccontextmanager
async def slow_load(
    urls: Sequence[str], clients: int, inputs: int, headers: Mapping[str, str]
) -> AsyncIterator[list[Call]]:
    """Has a concurrent_clients send requests of so many inputs."""
    async with concurrent_clients(partial(_client, urls, inputs, itertools.count(), headers), clients) as calls:
        yield calls


async def _client(
    urls: Sequence[str],
    inputs: int,
    numbers: Iterator[int],
    headers: Mapping[str, str],
    over: asyncio.Event,
    calls: list[Call],
) -> None:
    async with plain_http.client(timeout=TIMEOUT_S + 10, headers=headers) as client:
        while not over.is_set():
            number, began = next(numbers), time.monotonic()
            texts = [f"slow {number} text {i}" for i in range(inputs)]
            body = {"texts": texts, "model": MODEL, "timeout_ms": int(TIMEOUT_S * 1000)}
            try:
                told = await _told(client, "POST", f"{urls[number % len(urls)]}/embed", json=body)
                outcome = _compared(told, texts)
            except Failed as failed:
                outcome = str(failed)
            calls.append(Call(texts[0], TIMEOUT_S, began, time.monotonic(), outcome))


async def run_job(urls: Sequence[str], inputs: int, headers: Mapping[str, str]) -> Call:
    """Submits a job and asks for it until it has ended, of one gateway after the other; returns how it went.

    Not one of its requests may fail.
    """
    began, texts = time.monotonic(), [f"job text {i}" for i in range(inputs)]
    async with plain_http.client(timeout=WAIT_S + 10, headers=headers) as client:
        try:
            outcome = await _job(client, itertools.cycle(urls), texts, began + JOB_S)
        except Failed as failed:
            outcome = str(failed)
    return Call(texts[0], JOB_S, began, time.monotonic(), outcome)


async def _job(client: httpx.AsyncClient, urls: Iterator[str], texts: list[str], until: float) -> str:
    job = await _told(client, "POST", f"{next(urls)}/jobs", httpx.codes.ACCEPTED, json={"texts": texts, "model": MODEL})
    while job["status"] in ("queued", "running"):
        if time.monotonic() > until:
            return "hangs"
        job = await _told(client, "GET", f"{next(urls)}{job['status_url']}?wait={WAIT_S}")
    if (job["status"], job["done"], job["failed"]) != ("done", len(texts), 0):
        return f"{job['status']}: {job['done']} of {len(texts)} done, {job['failed']} failed"
    return _compared(await _told(client, "GET", f"{next(urls)}{job['result_url']}"), texts)


async def _told(
    client: httpx.AsyncClient, method: str, url: str, wanted: int = httpx.codes.OK, json: object = None
) -> Any:  # noqa: ANN401 - as JSON
    """Returns what an answer says. Raises Failed: it is another than the one wanted, or there is none."""
    try:
        answer = await client.request(method, url, json=json)
    except httpx.TimeoutException:
        raise Failed("hangs") from None
    except httpx.TransportError:
        raise Failed(RESET) from None
    if not answer.headers["content-type"].startswith("application/json"):
        raise Failed(f"{answer.status_code} of somebody else")  # of what stands in front of the gateways
    if answer.status_code != wanted:
        raise Failed(f"{answer.status_code} {answer.json()['error']['code']}")
    return answer.json()


def _compared(told: Any, texts: Sequence[str]) -> str:  # noqa: ANN401 - as JSON
    return OK if list(map(digits, told["embeddings"])) == list(map(digits_of, texts)) else FOREIGN
