"""Clients that call gateways over HTTP as long as the harm lasts, each with texts of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests import plain_http
from tests.chaos.history import FOREIGN, OK, RESET, Call
from tests.integration.gateway.house import digits, digits_of

PATIENCE_S = 10.0


Client = Callable[[asyncio.Event, list[Call]], Coroutine[Any, Any, None]]
"""Calls until the event is set, and notes each call when it has ended."""


@asynccontextmanager
async def crowd(client: Client, clients: int) -> AsyncIterator[list[Call]]:
    """Has so many clients call until the end of the block; yields the calls, which are all ended after it."""
    calls: list[Call] = []
    over = asyncio.Event()
    calling = [asyncio.create_task(client(over, calls)) for _ in range(clients)]
    try:
        yield calls
    finally:
        over.set()
        await asyncio.gather(*calling)


@asynccontextmanager
async def load(
    urls: Sequence[str], clients: int, timeout_s: float = 20.0, headers: Mapping[str, str] | None = None
) -> AsyncIterator[list[Call]]:
    """Has a crowd call the gateways in turn.

    `urls` may be changed meanwhile, as a load balancer's list of those in service is.
    """
    async with crowd(partial(_client, urls, itertools.count(), timeout_s, headers), clients) as calls:
        yield calls


async def _client(
    urls: Sequence[str],
    numbers: Iterator[int],
    timeout_s: float,
    headers: Mapping[str, str] | None,
    over: asyncio.Event,
    calls: list[Call],
) -> None:
    async with plain_http.client(timeout=timeout_s + PATIENCE_S, headers=headers) as client:
        while not over.is_set():
            number = next(numbers)
            text, began = f"text {number}", time.monotonic()
            outcome = await _outcome(client, urls[number % len(urls)], text, timeout_s)
            calls.append(Call(text, timeout_s, began, time.monotonic(), outcome))


async def _outcome(client: httpx.AsyncClient, url: str, text: str, timeout_s: float) -> str:
    body = {"text": text, "timeout_ms": int(timeout_s * 1000)}
    try:
        answer = await client.post(f"{url}/embed", json=body)
    except httpx.TimeoutException:
        return "hangs"
    except httpx.TransportError:
        return RESET
    if not answer.headers["content-type"].startswith("application/json"):
        return f"{answer.status_code} of somebody else"  # of what stands in front of the gateways
    told: Any = answer.json()
    if answer.status_code != httpx.codes.OK:
        return f"{answer.status_code} {told['error']['code']}"
    return OK if digits(told["embedding"]) == digits_of(text) else FOREIGN


async def open_loop(url: str, out: Path, *arguments: str) -> dict[str, Any]:
    """Runs `redbatch bench` in a process of its own; returns what it measured."""
    command = [sys.executable, "-m", "redbatch", "bench", url, "--out", str(out), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found
