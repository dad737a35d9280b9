"""Strangers without a key: heads without an end, and connections without a head (F21)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from tests import plain_http
from tests.chaos.attack import exchange, p99_of, probe_livez
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway import few_files
from tests.integration.gateway.gateway_cluster import gateway_of, is_listening

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

STRANGERS, STRANGER = 100, "127.0.0.2"
ATTACK_S = 3.0
MAX_P99_MS = 250.0
"""Generous: the attackers take one of the machine's cores, too. docs/reliability.md has the figure of a quiet one."""

MAX_GROWTH_MB = 5.0
MAX_FILES, NUM_SILENT = 400, 450

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
ENDLESS: dict[str, tuple[bytes, bytes, bytes]] = {
    "fields without an end": (HEAD, b"a: b\r\n" * 4_000, b"431"),
    "a value without an end": (HEAD + b"a: ", b"x" * 16_384, b"431"),
    "a value without an end, in small parts": (HEAD + b"a: ", b"x" * 1_024, b"431"),
    "a name without an end": (HEAD, b"x" * 16_384, b"431"),
    "a URL without an end": (b"GET /", b"u" * 2_048, b"414"),
}
"""By name: how the head begins, what follows again and again, and the status of the answer."""


@pytest.mark.parametrize("name", ENDLESS)
async def test_endless_heads(scenario: Scenario, name: str) -> None:
    """F21: 100 heads without an end at once are refused; memory grows by 5 MB, and other requests are not delayed."""
    begin, part, status = ENDLESS[name]

    async def parts() -> AsyncIterator[bytes]:
        yield begin
        while True:
            yield part
            await asyncio.sleep(0)

    await scenario.start(gateways=1, workers=1)
    (gateway,) = scenario.gateways
    process = psutil.Process(gateway.program.pid)
    answers = list[bytes]()
    async with scenario.load(clients=8) as calls, probe_livez(gateway) as latencies_s:
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        before_mb = process.memory_info().rss / 1e6
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            answers += await asyncio.gather(*(exchange(gateway, parts(), STRANGER) for _ in range(STRANGERS)))
        growth_mb = process.memory_info().rss / 1e6 - before_mb
    refused = sum(answer.startswith(b"HTTP/1.1 " + status) for answer in answers)
    p99_ms = p99_of(latencies_s)
    found = {
        "attacks": len(answers),
        "refused": refused,
        "livez_p99_ms": round(p99_ms),
        "growth_mb": round(growth_mb, 1),
    }
    verdict = scenario.judge(f"F21 {name}", calls, **found)
    assert refused == len(answers)
    assert all_correct(verdict)
    assert growth_mb <= MAX_GROWTH_MB
    assert p99_ms <= MAX_P99_MS


@pytest.mark.parametrize("sent", [b"", HEAD], ids=["silent", "half a head"])
async def test_connections_without_a_head(scenario: Scenario, sent: bytes) -> None:
    """F21: 450 connections without a head to a gateway with 400 descriptors: all other requests are answered."""
    env = scenario.cluster.env() | few_files.env(MAX_FILES)
    program = await scenario.cluster.processes.start("gateway", few_files.MODULE, env, is_listening)
    gateway = gateway_of(program)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    address = ("127.0.0.1", gateway.port)
    async with scenario.load(clients=8) as calls, probe_livez(gateway) as latencies_s:
        with contextlib.ExitStack() as stack:
            for _ in range(NUM_SILENT):
                connection = stack.enter_context(socket.create_connection(address, 10, (STRANGER, 0)))
                with contextlib.suppress(OSError):  # the gateway has closed it already
                    connection.sendall(sent)
            for path in (f"{gateway.url}/health", f"{gateway.admin}/metrics"):
                answer = await asyncio.to_thread(plain_http.get, path)
                assert answer.status_code == 200
            await asyncio.sleep(1)
        num_files = psutil.Process(program.pid).num_fds()
    kind = "half heads" if sent else "silent connections"
    verdict = scenario.judge(f"F21 {kind}", calls, livez_p99_ms=round(p99_of(latencies_s)), connections=NUM_SILENT)
    assert all_correct(verdict)
    assert num_files <= MAX_FILES
