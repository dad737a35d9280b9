"""Large results of functions: those that arrive from Redis at a time take a bounded part of a gateway's memory."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from shared import consumer
from shared.codec import encode_reply
from shared.connection import RedisConnection
from shared.consumer import CommitOptions, EntryAnswer
from shared.messages import PREDICT, Entry, Heartbeat, Values
from shared.queue_connections import QueueConnections
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.integration.queue.actors import Worker
from tests.unit.api.parse_peak import peak_bytes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(90)]

MIB = 2**20
REQUESTS, RESULT = 40, b'"%b"' % (b"x" * 8 * MIB)
MAX_IN_FLIGHT = MAX_UNSENT = 32 * MIB
TIMEOUT_MS = 60_000
"""Of each call: a slow machine needs more than the default for 320 MiB of results."""
MAX_GROWTH = MAX_IN_FLIGHT + MAX_UNSENT + 70 * MIB
"""Beside these, a call brings up to 16 MiB, twice while it is parsed, and each answer is encoded."""


@contextmanager
def stopped(gateway: GatewayProcess) -> Iterator[None]:
    """Stops a gateway during a block, in which replies gather in Redis."""
    gateway.program.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        gateway.program.signal(signal.SIGCONT)


def answer_to(entry: Entry) -> EntryAnswer:
    """Returns an answer with large outputs."""
    outputs = (RESULT,) * entry.ref.n
    return EntryAnswer(entry, encode_reply(Values(entry.request_id, entry.position, entry.ref.n, outputs)))


async def kill_other_connections(connection: RedisConnection) -> None:
    """Closes all connections to Redis except this one."""
    await connection.call("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal")


async def announced_worker(queue: QueueConnections) -> Worker:
    """Returns a worker of a function that answers what a test has it answer."""
    worker = Worker(queue.connection("worker"), queue.keys, "ghost")
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0, ops=(PREDICT,))
    await consumer.join(worker.connection, worker.keys)
    await consumer.heartbeat(worker.connection, worker.keys, beat, 60_000)
    return worker


@pytest.mark.parametrize("breaks", [False, True], ids=["announced", "reconciled"])
async def test_large_results_that_arrive_together_do_not_fill_the_memory(
    breaks: bool, cluster: GatewayCluster, queue: QueueConnections, client: httpx.AsyncClient
) -> None:
    """40 results of 8 MiB are ready at once: the gateway takes a few at a time, and answers these before the next."""
    worker = await announced_worker(queue)
    gateway = await cluster.start_gateway(
        max_in_flight_bytes=MAX_IN_FLIGHT,
        max_unsent_bytes=MAX_UNSENT,
        request_timeout_ms=TIMEOUT_MS,
        redis_timeout_s=TIMEOUT_MS / 1000,
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    calls = [
        asyncio.create_task(client.post(f"{gateway.url}/predict", json={"input": number})) for number in range(REQUESTS)
    ]
    entries: list[Entry] = []

    async def claimed_all() -> bool:
        entries.extend(await worker.claim())
        return len(entries) == REQUESTS

    await wait_until(claimed_all, "all requests are claimed")
    before = peak_bytes(gateway.program.pid)
    answered = [answer_to(each) for each in entries]
    options = CommitOptions(worker.name, TIMEOUT_MS)
    with stopped(gateway):  # for a moment: after some seconds, its connections to Redis count as broken
        if breaks:  # before there are replies, of which none is lost then
            await kill_other_connections(worker.connection)
        for each in answered:
            await consumer.commit(worker.connection, worker.keys, [each], options)
    answers = Counter(
        result.status_code if isinstance(result, httpx.Response) else type(result)
        for result in await asyncio.gather(*calls, return_exceptions=True)
    )
    await consumer.leave(worker.connection, worker.keys, worker.name)
    assert set(answers) <= {200, 429, httpx.ReadError, httpx.RemoteProtocolError}, "the last two: over max_unsent_bytes"
    assert answers[200] >= 3
    assert peak_bytes(gateway.program.pid) - before <= MAX_GROWTH
