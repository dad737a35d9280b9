"""Strangers at the admin ports of a gateway and a worker (F21)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

import psutil
import pytest

from shared.process.admin_server import MAX_CONNECTIONS
from tests.chaos.attack import MAX_P99_MS, measure_growth, memory_of, p99_of, probe_livez, status_of
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway.gateway_cluster import metrics_url

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

NUM_STRANGERS = 300
"""At each port: every other one sends half a head, the others nothing."""

HALF_HEAD = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
MAX_GROWTH_MB = 10.0


async def test_strangers_at_the_admin_ports(scenario: Scenario) -> None:
    """F21: half heads and silence take few threads and no memory; metrics are answered, and nothing is in the logs."""
    await scenario.start(gateways=1, workers=1)
    programs = [scenario.gateways[0].program, scenario.workers[0]]
    urls, processes = [metrics_url(each) for each in programs], [psutil.Process(each.pid) for each in programs]
    threads_before = [each.num_threads() for each in processes]
    async with scenario.load(clients=8) as calls, probe_livez(scenario.gateways[0]) as latencies_s:
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        async with measure_growth(*map(memory_of, processes)) as growths_mb:
            with contextlib.ExitStack() as stack:
                for url in urls:
                    await asyncio.to_thread(connect_strangers, stack, urlsplit(url).port)
                statuses = [await asyncio.to_thread(status_of, url) for url in urls]
                threads = [each.num_threads() - before for each, before in zip(processes, threads_before, strict=True)]
            await asyncio.sleep(0.5)  # the connections are closed now: an error would be logged
    tracebacks, p99_ms = sum(each.output.count("Traceback") for each in programs), p99_of(latencies_s)
    figures = {"connections": NUM_STRANGERS * len(urls), "threads": max(threads), "tracebacks": tracebacks}
    figures |= {"livez_p99_ms": round(p99_ms), "growth_mb": round(max(growths_mb))}
    verdict = scenario.judge("F21 half heads at the admin ports", calls, **figures)
    assert statuses == [200, 200]
    assert all_correct(verdict)
    assert max(threads) <= MAX_CONNECTIONS + 1
    assert tracebacks == 0
    assert max(growths_mb) <= MAX_GROWTH_MB
    assert p99_ms <= MAX_P99_MS


def connect_strangers(stack: contextlib.ExitStack, port: int | None) -> None:
    """Opens connections to a port."""
    for number in range(NUM_STRANGERS):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        with contextlib.suppress(OSError):  # closed already, to make room
            connection.sendall(HALF_HEAD if number % 2 else b"")
