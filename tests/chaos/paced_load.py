"""Calls at a constant rate, however long the answers take, with a client that leaves the CPU to the cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from redbatch.bench.answers import Answer
from redbatch.bench.connection import Connection
from redbatch.bench.connector import Connector
from redbatch.bench.target import encode_request, parse_target
from tests.chaos.history import FOREIGN, OK, RESET, Call
from tests.integration.gateway.gateway_cluster import null_vector, vector_bytes

ANSWER_MARGIN_S = 10.0


class _Client:
    """Calls one gateway over as many connections as calls are open."""

    def __init__(self, url: str, timeout_s: float, calls: list[Call]) -> None:
        self._target = parse_target(url)
        self._connector = Connector(self._target, keep_bodies=True)
        self._timeout_s = timeout_s
        self._calls = calls
        self._idle: set[Connection] = set()
        self._texts: dict[Connection, str] = {}

    @property
    def num_open(self) -> int:
        """The number of calls without an answer."""
        return len(self._texts)

    async def call(self, text: str) -> None:
        """Sends a call; its answer is recorded when it comes."""
        connection = self._idle.pop() if self._idle else await self._connector.connect(self)
        self._texts[connection] = text
        body = json.dumps({"text": text, "timeout_ms": int(self._timeout_s * 1000)}).encode()
        connection.send(encode_request(self._target, [], body), time.monotonic())

    def on_answer(self, connection: Connection, answer: Answer) -> None:
        """Records a call, whose vector must be that of its text."""
        text, content = self._texts.pop(connection), json.loads(answer.body)
        if answer.status != 200:
            outcome = f"{answer.status} {content['error']['code']}"
        else:
            outcome = OK if vector_bytes(content["embedding"]) == null_vector(text) else FOREIGN
        self._record(connection, text, outcome)
        if answer.keep_alive:
            self._idle.add(connection)

    def on_failure(self, connection: Connection, code: str) -> None:
        """Records a call without an answer."""
        self._record(connection, self._texts.pop(connection), RESET if code == "connection_lost" else code)

    def on_close(self, connection: Connection) -> None:
        """Forgets an idle connection."""
        self._idle.discard(connection)

    def close(self) -> None:
        """Closes all connections; calls without an answer hang."""
        for connection in [*self._idle, *self._texts]:
            connection.abort("hangs")

    def _record(self, connection: Connection, text: str, outcome: str) -> None:
        self._calls.append(Call(text, self._timeout_s, connection.start_s, time.monotonic(), outcome))


@asynccontextmanager
async def paced_load(urls: Sequence[str], calls_per_s: float, timeout_s: float) -> AsyncIterator[list[Call]]:
    """Calls the gateways in turn until the end of the block; yields the calls, which have all ended after the block.

    `urls` may change meanwhile, like the list of endpoints of a load balancer.
    """
    calls: list[Call] = []
    clients: dict[str, _Client] = {}
    sending = asyncio.create_task(_send(urls, lambda url: _Client(url, timeout_s, calls), clients, calls_per_s))
    try:
        yield calls
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        until = time.monotonic() + timeout_s + ANSWER_MARGIN_S
        while any(each.num_open for each in clients.values()) and time.monotonic() < until:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
        for each in clients.values():
            each.close()


async def _send(
    urls: Sequence[str], new_client: Callable[[str], _Client], clients: dict[str, _Client], calls_per_s: float
) -> None:
    began = time.monotonic()
    for number in itertools.count():
        await asyncio.sleep(began + number / calls_per_s - time.monotonic())
        url = urls[number % len(urls)]
        if url not in clients:
            clients[url] = new_client(url)
        await clients[url].call(f"text {number}")
