"""More clients that a rollout could affect than in tests/chaos/load.py: with slow requests, and with a job."""

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
from tests.integration.gateway.gateway_cluster import null_vector, vector_bytes

MODEL = "slow"
"""Queue of the model that these clients use."""

TIMEOUT_S = 300.0
"""The longest timeout that a client may set. Requests over a tenant's share go through the lane `bulk`, behind the job,
and with a timeout of only a minute they would be refused there as too late."""

JOB_S = 120.0
WAIT_S = 5


class CallError(Exception):
    """An unexpected answer; the message describes it."""


@asynccontextmanager
async def slow_load(
    urls: Sequence[str], clients: int, inputs: int, headers: Mapping[str, str]
) -> AsyncIterator[list[Call]]:
    """Runs clients that send requests with this number of inputs."""
    async with concurrent_clients(partial(_client, urls, inputs, itertools.count(), headers), clients) as calls:
        yield calls


async def _client(
    urls: Sequence[str],
    inputs: int,
    numbers: Iterator[int],
    headers: Mapping[str, str],
    stop: asyncio.Event,
    calls: list[Call],
) -> None:
    async with plain_http.client(timeout=TIMEOUT_S + 10, headers=headers) as client:
        while not stop.is_set():
            number, began = next(numbers), time.monotonic()
            texts = [f"slow {number} text {i}" for i in range(inputs)]
            body = {"texts": texts, "model": MODEL, "timeout_ms": int(TIMEOUT_S * 1000)}
            try:
                body = await _request_json(client, "POST", f"{urls[number % len(urls)]}/embed", json=body)
                outcome = _compare(body, texts)
            except CallError as error:
                outcome = str(error)
            calls.append(Call(texts[0], TIMEOUT_S, began, time.monotonic(), outcome))


async def run_job(urls: Sequence[str], inputs: int, headers: Mapping[str, str]) -> Call:
    """Submits a job and polls it until it has ended, at the gateways in turn; returns its call.

    If one of the requests fails, that is the outcome.
    """
    began, texts = time.monotonic(), [f"job text {i}" for i in range(inputs)]
    async with plain_http.client(timeout=WAIT_S + 10, headers=headers) as client:
        try:
            outcome = await _job(client, itertools.cycle(urls), texts, began + JOB_S)
        except CallError as error:
            outcome = str(error)
    return Call(texts[0], JOB_S, began, time.monotonic(), outcome)


async def _job(client: httpx.AsyncClient, urls: Iterator[str], texts: list[str], until: float) -> str:
    job = await _request_json(
        client, "POST", f"{next(urls)}/jobs", httpx.codes.ACCEPTED, json={"texts": texts, "model": MODEL}
    )
    while job["status"] in ("queued", "running"):
        if time.monotonic() > until:
            return "hangs"
        job = await _request_json(client, "GET", f"{next(urls)}{job['status_url']}?wait={WAIT_S}")
    if (job["status"], job["done"], job["failed"]) != ("done", len(texts), 0):
        return f"{job['status']}: {job['done']} of {len(texts)} done, {job['failed']} failed"
    return _compare(await _request_json(client, "GET", f"{next(urls)}{job['result_url']}"), texts)


async def _request_json(
    client: httpx.AsyncClient, method: str, url: str, expected: int = httpx.codes.OK, json: object = None
) -> Any:  # noqa: ANN401 - as JSON
    """Returns the body of an answer. Raises CallError: the status is not the expected one, or there is no answer."""
    try:
        answer = await client.request(method, url, json=json)
    except httpx.TimeoutException:
        raise CallError("hangs") from None
    except httpx.TransportError:
        raise CallError(RESET) from None
    if not answer.headers["content-type"].startswith("application/json"):
        raise CallError(f"{answer.status_code} not from a gateway")  # of a proxy in front of the gateways
    if answer.status_code != expected:
        raise CallError(f"{answer.status_code} {answer.json()['error']['code']}")
    return answer.json()


def _compare(body: Any, texts: Sequence[str]) -> str:  # noqa: ANN401 - as JSON
    return OK if list(map(vector_bytes, body["embeddings"])) == list(map(null_vector, texts)) else FOREIGN
