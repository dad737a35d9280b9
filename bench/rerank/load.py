"""Sends requests to a server from several clients, and checks each answer against its own pairs."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from bench.failures import reason
from bench.rerank.requests import TIMEOUT_MS, Form, RerankRequest, WrongScoreError, check_scores

HEADERS = {"content-type": "application/json", "x-timeout-ms": str(TIMEOUT_MS)}


@dataclass(frozen=True, slots=True)
class Task:
    """A request as a server reads it, and the scores that its answer must have."""

    body: bytes
    expected: Sequence[float]


@dataclass(frozen=True, slots=True)
class Result:
    """How long all requests took together, and each of them (s)."""

    seconds: float
    latencies_s: Sequence[float]
    pairs: int

    @property
    def pairs_per_s(self) -> float:
        """Scored pairs per second."""
        return self.pairs / self.seconds

    @property
    def p50_s(self) -> float:
        """Median time of a request."""
        return statistics.median(self.latencies_s)


def encode_tasks(form: Form, requests: Sequence[RerankRequest], scores: Sequence[Sequence[float]]) -> list[Task]:
    """Returns the requests in a server's form, with the scores of their pairs."""
    return [
        Task(json.dumps(form.encode(request)).encode(), expected)
        for request, expected in zip(requests, scores, strict=True)
    ]


def send(url: str, form: Form, tasks: Sequence[Task], clients: int) -> Result:
    """Sends each request once; each client sends the next one when it has its answer, over its own connection.

    Raises:
        WrongScoreError: a request failed, or its answer has not the scores of its pairs.
        OSError: the server does not answer.
    """
    return asyncio.run(_send(url, form, tasks, clients))


async def _send(url: str, form: Form, tasks: Sequence[Task], clients: int) -> Result:
    latencies_s: list[float] = []
    remaining = iter(tasks)
    limits, timeout_s = httpx.Limits(max_connections=clients), TIMEOUT_MS / 1000 + 10
    async with httpx.AsyncClient(limits=limits, timeout=timeout_s, trust_env=False) as client:
        began = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(clients):
                    group.create_task(_run_client(client, url, form, remaining, latencies_s))
        except* (WrongScoreError, httpx.HTTPError) as errors:
            raise _as_one(errors) from None
        seconds = time.perf_counter() - began
    return Result(seconds, latencies_s, sum(len(each.expected) for each in tasks))


def _as_one(errors: ExceptionGroup[Exception]) -> Exception:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, WrongScoreError):
        return first
    return ConnectionError(f"the server does not answer: {reason(first)}")


async def _run_client(
    client: httpx.AsyncClient, url: str, form: Form, remaining: Iterator[Task], latencies_s: list[float]
) -> None:
    for task in remaining:
        began = time.perf_counter()
        answer = await client.post(url, content=task.body, headers=HEADERS)
        latencies_s.append(time.perf_counter() - began)
        if answer.status_code != httpx.codes.OK:
            raise WrongScoreError(f"status {answer.status_code}: {answer.text[:200]}")
        check_scores(form, answer.content, task.expected)
