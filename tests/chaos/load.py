"""Clients that call gateways over HTTP while faults are injected; every text is different."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests import plain_http
from tests.chaos.history import FOREIGN, OK, RESET, Call
from tests.operations import EMBED, Operation

ANSWER_MARGIN_S = 10.0


Client = Callable[[asyncio.Event, list[Call]], Coroutine[Any, Any, None]]
"""A client: it calls until the event is set, and records each call when it has ended."""


@asynccontextmanager
async def concurrent_clients(client: Client, clients: int) -> AsyncIterator[list[Call]]:
    """Runs clients until the end of the block; yields their calls, which have all ended after the block."""
    calls: list[Call] = []
    stop = asyncio.Event()
    tasks = [asyncio.create_task(client(stop, calls)) for _ in range(clients)]
    try:
        yield calls
    finally:
        stop.set()
        await asyncio.gather(*tasks)


@asynccontextmanager
async def load(
    urls: Sequence[str],
    clients: int,
    timeout_s: float = 20.0,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    operation: Operation = EMBED,
) -> AsyncIterator[list[Call]]:
    """Runs clients that request an operation of the gateways in turn.

    `urls` may change meanwhile, like the list of endpoints of a load balancer.
    """
    options: dict[str, Any] = {
        "timeout": timeout_s + ANSWER_MARGIN_S,
        "headers": headers,
        "tls": tls or plain_http.NO_TLS,
    }
    numbers = itertools.count()

    async def run(stop: asyncio.Event, calls: list[Call]) -> None:
        async with plain_http.client(**options) as client:
            while not stop.is_set():
                number = next(numbers)
                text, began = f"text {number}", time.monotonic()
                outcome = await _outcome(client, urls[number % len(urls)], operation, text, timeout_s)
                calls.append(Call(text, timeout_s, began, time.monotonic(), outcome))

    async with concurrent_clients(run, clients) as calls:
        yield calls


async def _outcome(client: httpx.AsyncClient, url: str, operation: Operation, text: str, timeout_s: float) -> str:
    body = operation.body(text) | {"timeout_ms": int(timeout_s * 1000)}
    try:
        answer = await client.post(f"{url}{operation.path}", json=body)
    except httpx.TimeoutException:
        return "hangs"
    except httpx.TransportError:
        return RESET
    if not answer.headers["content-type"].startswith("application/json"):
        return f"{answer.status_code} not from a gateway"  # of a proxy in front of the gateways
    content: Any = answer.json()
    if answer.status_code != httpx.codes.OK:
        return f"{answer.status_code} {content['error']['code']}"
    return OK if operation.is_answer(content, text) else FOREIGN


async def open_loop(url: str, out: Path, *arguments: str) -> dict[str, Any]:
    """Runs `redbatch bench` in a separate process; returns its measurements."""
    command = [sys.executable, "-m", "redbatch", "bench", url, "--out", str(out), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    measured: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return measured
