"""Strangers without a key: heads without an end, connections without a head, and refused requests (F21)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from api.http.connection_table import MAX_SPARES, max_connections_of
from tests import plain_http
from tests.chaos.attack import (
    MAX_P99_MS,
    fault_name,
    measure_growth,
    memory_of,
    new_tenant,
    p99_of,
    probe_livez,
    status_of,
)
from tests.chaos.load import load
from tests.chaos.scenario import Figures, Scenario, all_correct
from tests.integration.gateway import few_files
from tests.integration.gateway.gateway_cluster import GatewayProcess, gateway_of, is_listening
from tests.integration.gateway.http_ways import BY_NGINX, SETTINGS, THROUGH_NGINX, WAYS, Way, open_way
from tests.integration.gateway.test_connections import is_closed

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

IDLE_FAULT = "F21 idle connections of 249 addresses"
STRANGERS, STRANGER = 100, "127.0.0.2"
ATTACK_S = 3.0
MAX_GROWTH_MB = 5.0
"""100 connections take 1.5 MB, 300 take 3.3, and all unfinished heads 1 MiB. 14,000 requests in each of 100 reads would
take 3 GB.
"""

MAX_TRICKLE_GROWTH_MB = 10.0
"""At most 300 refused requests whose bodies are read take 6.8 MB: each has a task."""

MIN_ANSWERED_RATIO = 0.9
"""A client that goes on sending after its refusal is cut off, and may then not see the answer."""

MAX_SENT_BYTES = 300_000
"""Of one head: beyond 256 KiB after its answer the gateway cuts off who goes on sending, and the answer may be lost."""

MAX_FILES, NUM_STRANGERS = 400, 450
MAX_OTHER_FILES = 60
"""Maximum files that a gateway has open beside connections of strangers; it has 36."""

NUM_ADDRESSES = 249
"""From 127.0.0.2 on: three connections of each are 1 % of all."""

MAX_SHARE = 0.5
"""The default of `max_address_ratio`."""

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
ENDLESS: dict[str, tuple[bytes, bytes, set[bytes]]] = {
    "fields without an end": (HEAD, b"a: b\r\n" * 4_000, {b"431"}),
    "a value without an end": (HEAD + b"a: ", b"x" * 16_384, {b"431", b"503"}),
    "a value without an end, in small parts": (HEAD + b"a: ", b"x" * 1_024, {b"431", b"503"}),
    "a name without an end": (HEAD, b"x" * 16_384, {b"431", b"503"}),
    "a URL without an end": (b"GET /", b"u" * 2_048, {b"414", b"503"}),
    "requests without an end in one read": (b"", b"GET / HTTP/1.1\r\n\r\n" * 14_000, {b""}),
}
"""By name: how the head begins, what follows again and again, and the statuses of the answers, b"" for none.

503: there was no room for it among all unfinished heads, before it was over its own limits.
"""

UNANSWERED, CLOSED = b"unanswered", "closed"


def figures_of(latencies_s: list[float], growths_mb: list[float]) -> Figures:
    """Returns the figures of the probes and of the gateway's memory."""
    return {"livez_p99_ms": round(p99_of(latencies_s)), "growth_mb": round(growths_mb[0], 1)}


def assert_bounded(latencies_s: list[float], growths_mb: list[float], max_growth_mb: float = MAX_GROWTH_MB) -> None:
    """Raises AssertionError: probes waited too long, or the gateway's memory grew too much."""
    assert growths_mb[0] <= max_growth_mb
    assert p99_of(latencies_s) <= MAX_P99_MS


async def status_of_attack(way: Way, parts: AsyncIterator[bytes]) -> bytes:
    """Sends an attack; returns the status of its answer."""
    try:
        return (await way.exchange(parts, STRANGER))[9:12]
    except TimeoutError:
        return UNANSWERED


@pytest.mark.parametrize("way_name", WAYS)
@pytest.mark.parametrize("name", ENDLESS)
async def test_endless_heads(scenario: Scenario, api_key: str, tmp_path: Path, name: str, way_name: str) -> None:
    """F21: 100 such attacks at once are refused; memory hardly grows, and other requests are not delayed."""
    begin, part, expected = ENDLESS[name]
    if way_name == THROUGH_NGINX:
        expected = {b"%d" % BY_NGINX[name]}

    async def parts() -> AsyncIterator[bytes]:
        yield begin
        for _ in range(MAX_SENT_BYTES // len(part)):
            yield part
            await asyncio.sleep(0)

    gateway = await scenario.cluster.start_gateway(**SETTINGS)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    process, statuses = psutil.Process(gateway.program.pid), Counter[bytes]()
    async with (
        open_way(way_name, gateway, tmp_path, api_key) as way,
        scenario.load(clients=8, way=way) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        until = time.monotonic() + ATTACK_S
        async with measure_growth(memory_of(process)) as growths_mb:
            while time.monotonic() < until:
                attacks = (status_of_attack(way, parts()) for _ in range(STRANGERS))
                statuses.update(await asyncio.gather(*attacks))
    refused = sum(statuses[each] for each in expected)
    found = {"statuses": Counter({each.decode() or CLOSED: number for each, number in statuses.items()})}
    verdict = scenario.judge(fault_name(f"F21 {name}", way_name), calls, **found, **figures_of(latencies_s, growths_mb))
    assert set(statuses) <= expected | {b""}
    assert refused >= MIN_ANSWERED_RATIO * statuses.total()
    assert all_correct(verdict)
    assert_bounded(latencies_s, growths_mb)


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
    gateway, process = gateway_of(program), psutil.Process(program.pid)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    async with (
        open_way(way_name, gateway, tmp_path, api_key) as way,
        scenario.load(clients=8, way=way) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        address = ("127.0.0.1", way.port)
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        async with measure_growth(memory_of(process)) as growths_mb:
            with contextlib.ExitStack() as stack:
                for _ in range(NUM_STRANGERS):
                    connection = stack.enter_context(socket.create_connection(address, 10, (STRANGER, 0)))
                    with contextlib.suppress(OSError):  # the gateway has closed it already
                        connection.sendall(sent)
                urls = (f"{gateway.url}/health", f"{gateway.admin}/metrics")
                probes = [await asyncio.to_thread(status_of, url) for url in urls]
                await asyncio.sleep(1)
                num_files = process.num_fds()
    kind, found = "half heads" if sent else "silent connections", {"connections": NUM_STRANGERS, "files": num_files}
    verdict = scenario.judge(fault_name(f"F21 {kind}", way_name), calls, **found, **figures_of(latencies_s, growths_mb))
    assert probes == [200, 200]
    assert all_correct(verdict)
    assert_bounded(latencies_s, growths_mb)
    assert num_files <= max_connections_of(MAX_FILES, MAX_FILES) * MAX_SHARE + MAX_SPARES + MAX_OTHER_FILES


async def test_connections_of_many_addresses(scenario: Scenario, api_key: str) -> None:
    """F21: 249 addresses, each far below its share, open 750 connections to a gateway for 300: the oldest idle ones go.

    Every second one has received an answer. New clients and those with requests are served all the time, as are probes.
    """
    env = scenario.cluster.env(**SETTINGS, head_timeout_s=60) | few_files.env(MAX_FILES)
    program = await scenario.cluster.processes.start("gateway", few_files.MODULE, env, is_listening)
    gateway, process = gateway_of(program), psutil.Process(program.pid)
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    max_connections, max_files, strangers = max_connections_of(MAX_FILES, MAX_FILES), 0, list[socket.socket]()
    way = Way(gateway.port, api_key=api_key)
    with contextlib.ExitStack() as stack:
        async with scenario.load(clients=8, way=way) as calls, probe_livez(gateway) as latencies_s:
            await asyncio.sleep(1)  # until the memory of the load itself grows no more
            async with measure_growth(memory_of(process)) as growths_mb:
                for number in range(3 * NUM_ADDRESSES):
                    source = (f"127.0.0.{2 + number % NUM_ADDRESSES}", 0)
                    stranger = socket.create_connection(("127.0.0.1", gateway.port), 10, source)
                    strangers.append(stack.enter_context(stranger))
                    if number % 2:
                        stranger.sendall(HEAD + b"\r\n")
                        assert (await asyncio.to_thread(stranger.recv, 65_536)).startswith(b"HTTP/1.1 200 ")
                    max_files = max(max_files, process.num_fds())
                    await asyncio.sleep(ATTACK_S / 3 / NUM_ADDRESSES)
            num_open = gateway.metric("redbatch_connections")  # which is from /metrics
            new_client = await asyncio.to_thread(gateway.embed, {"text": "of a new client"}, x_api_key=api_key)
            health = await asyncio.to_thread(plain_http.get, f"{gateway.url}/health")
        closed = list(map(is_closed, strangers))
    evicted = gateway.metric('redbatch_closed_connections_total{reason="evicted"}')
    found = {"connections": len(strangers), "closed": sum(closed), "files": max_files}
    verdict = scenario.judge(IDLE_FAULT, calls, **found, **figures_of(latencies_s, growths_mb))
    assert all_correct(verdict)
    assert (new_client.status_code, health.status_code) == (200, 200)
    assert num_open == max_connections
    assert closed == sorted(closed, reverse=True), "the oldest are closed first"
    assert evicted >= sum(closed) >= len(strangers) - max_connections
    assert max_files <= max_connections + MAX_SPARES + MAX_OTHER_FILES
    assert_bounded(latencies_s, growths_mb)


async def trickle_body(gateway: GatewayProcess, delay_s: float, source: str, until: float) -> bool:
    """Sends a request without a key, whose body comes by the byte; returns whether it was refused."""
    await asyncio.sleep(delay_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, local_addr=(source, 0))
    is_refused = False
    with contextlib.suppress(OSError):  # closed for another one
        writer.write(POST)
        is_refused = (await reader.read(65_536)).startswith(b"HTTP/1.1 4")
        while not reader.at_eof() and time.monotonic() < until:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.2)
    writer.transport.abort()
    return is_refused


@pytest.mark.leaves_anything
async def test_refused_requests_whose_bodies_trickle(own_scenario: Scenario) -> None:
    """F21: 450 refused requests, whose bodies go on, at a gateway for 300 connections: other clients lose none."""
    scenario = own_scenario
    key = {"x-api-key": await new_tenant(scenario.cluster.redis_url)}
    env = scenario.cluster.env(auth="on") | few_files.env(MAX_FILES)
    gateway = gateway_of(await scenario.cluster.processes.start("gateway", few_files.MODULE, env, is_listening))
    scenario.gateways.append(gateway)
    await scenario.start_worker()
    await scenario.wait_until_worker_seen()
    async with (
        load([gateway.url], 8, headers=key) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        until = time.monotonic() + 2 * ATTACK_S
        strangers = [
            trickle_body(gateway, number * ATTACK_S / NUM_STRANGERS, f"127.0.0.{2 + number % 3}", until)
            for number in range(NUM_STRANGERS)
        ]
        async with measure_growth(memory_of(psutil.Process(gateway.program.pid))) as growths_mb:
            num_refused = sum(await asyncio.gather(*strangers))
    found = {"refused": num_refused} | figures_of(latencies_s, growths_mb)
    verdict = scenario.judge("F21 refused requests whose bodies trickle", calls, **found)
    assert num_refused == NUM_STRANGERS
    assert all_correct(verdict)
    assert_bounded(latencies_s, growths_mb, MAX_TRICKLE_GROWTH_MB)
