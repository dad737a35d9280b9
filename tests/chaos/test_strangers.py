"""Strangers without a key: heads without an end, and connections without a head (F21)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests import plain_http
from tests.chaos.attack import fault_name, p99_of, probe_livez
from tests.chaos.scenario import Scenario, all_correct
from tests.integration.gateway import few_files
from tests.integration.gateway.gateway_cluster import gateway_of, is_listening
from tests.integration.gateway.http_ways import BY_NGINX, SETTINGS, THROUGH_NGINX, WAYS, open_way

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

STRANGERS, STRANGER = 100, "127.0.0.2"
ATTACK_S = 3.0
MAX_P99_MS = 250.0
"""Generous: the attackers take one of the machine's cores, too. docs/reliability.md has the figure of a quiet one."""

MAX_GROWTH_MB = 10.0
"""Unfinished heads may have 4.2 MB (`max_heads_bytes`), and the allocator keeps some. A longer attack takes no more."""

MAX_SENT_BYTES = 300_000
"""Of one head: beyond 256 KiB after its answer the gateway cuts off who goes on sending, and the answer may be lost."""

MAX_FILES, NUM_SILENT = 400, 450

HEAD = b"GET /redbatch/livez HTTP/1.1\r\nHost: x\r\n"
ENDLESS: dict[str, tuple[bytes, bytes, int]] = {
    "fields without an end": (HEAD, b"a: b\r\n" * 4_000, 431),
    "a value without an end": (HEAD + b"a: ", b"x" * 16_384, 431),
    "a value without an end, in small parts": (HEAD + b"a: ", b"x" * 1_024, 431),
    "a name without an end": (HEAD, b"x" * 16_384, 431),
    "a URL without an end": (b"GET /redbatch/", b"u" * 2_048, 414),
}
"""By name: how the head begins, what follows again and again, and the status of the answer."""


@pytest.mark.parametrize("way_name", WAYS)
@pytest.mark.parametrize("name", ENDLESS)
async def test_endless_heads(scenario: Scenario, api_key: str, tmp_path: Path, name: str, way_name: str) -> None:
    """F21: 100 heads without an end at once are refused; memory grows by 5 MB, and other requests are not delayed."""
    begin, part, status = ENDLESS[name]
    if way_name == THROUGH_NGINX:
        status = BY_NGINX[name]

    async def parts() -> AsyncIterator[bytes]:
        yield begin
        for _ in range(MAX_SENT_BYTES // len(part)):
            yield part
            await asyncio.sleep(0)

    gateway = await scenario.cluster.start_gateway(**SETTINGS)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    process = psutil.Process(gateway.program.pid)
    answers = list[bytes]()
    async with (
        open_way(way_name, gateway, tmp_path, api_key) as way,
        scenario.load(clients=8, way=way) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        before_mb = process.memory_info().rss / 1e6
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            answers += await asyncio.gather(*(way.exchange(parts(), STRANGER) for _ in range(STRANGERS)))
        growth_mb = process.memory_info().rss / 1e6 - before_mb
    refused = sum(answer.startswith(b"HTTP/1.1 %d " % status) for answer in answers)
    p99_ms = p99_of(latencies_s)
    found = {
        "attacks": len(answers),
        "refused": refused,
        "livez_p99_ms": round(p99_ms),
        "growth_mb": round(growth_mb, 1),
    }
    verdict = scenario.judge(fault_name(f"F21 {name}", way_name), calls, **found)
    assert refused == len(answers)
    assert all_correct(verdict)
    assert growth_mb <= MAX_GROWTH_MB
    assert p99_ms <= MAX_P99_MS


@pytest.mark.parametrize("way_name", WAYS)
@pytest.mark.parametrize("sent", [b"", HEAD], ids=["silent", "half a head"])
async def test_connections_without_a_head(
    scenario: Scenario, api_key: str, tmp_path: Path, sent: bytes, way_name: str
) -> None:
    """F21: 450 connections without a head to a gateway with 400 descriptors: all other requests are answered.

    nginx has them in its place, and none of them reaches the gateway.
    """
    env = scenario.cluster.env(**SETTINGS) | few_files.env(MAX_FILES)
    program = await scenario.cluster.processes.start("gateway", few_files.MODULE, env, is_listening)
    gateway = gateway_of(program)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    async with (
        open_way(way_name, gateway, tmp_path, api_key) as way,
        scenario.load(clients=8, way=way) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        address = ("127.0.0.1", way.port)
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
    verdict = scenario.judge(
        fault_name(f"F21 {kind}", way_name), calls, livez_p99_ms=round(p99_of(latencies_s)), connections=NUM_SILENT
    )
    assert all_correct(verdict)
    assert num_files <= MAX_FILES
