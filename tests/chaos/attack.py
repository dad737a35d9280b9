"""Attacks on a gateway: the keys and requests of attackers, how long other clients wait, and what grows meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import redis.asyncio

from shared import api_keys
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from shared.tenants import NO_QUOTA, Quota
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import DIRECTLY

ROOT = Path(__file__).parents[2]
MAX_P99_MS = 50.0
"""Of /livez during an attack: twice the worst figure in docs/reliability.md, of two cores, one of which the attackers
take. Other tests do not run at the time (`exclusive`); on a machine that is busy with other work it may be exceeded.
"""

MIN_PROBES = 100
"""Minimum number of probes: with fewer, the p99 would be the maximum."""

SAMPLE_S = 0.05

MemoryReader = Callable[[], Awaitable[float]]
"""Returns the memory that something uses now, in MB."""


async def new_tenant(redis_url: str, quota: Quota = NO_QUOTA) -> str:
    """Adds an API key with all scopes, of a new tenant, and returns it."""
    queue = QueueConnections(QueueSettings(redis_url=redis_url), "any", "test")
    key, secret = api_keys.new_key(api_keys.SCOPES, quota=quota)
    await api_keys.add(queue.connection("keys"), key)
    await queue.close()
    return secret


def request(path: str, api_key: str, body: bytes, content_type: str = "application/json") -> bytes:
    """Returns a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api_key}\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def probe_livez(gateway: GatewayProcess) -> AsyncIterator[list[float]]:
    """Requests /livez from another process during the block; fills the list with the latencies (s) after it."""
    latencies_s: list[float] = []
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.chaos.latency_probe", str(gateway.port)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()  # it has started
    try:
        yield latencies_s
    finally:
        output, _ = await process.communicate(b"")  # which ends its input
    assert process.returncode == 0
    latencies_s += json.loads(output)


def status_of(url: str) -> int | str:
    """Returns the status of a page, or the error if there is no answer."""
    try:
        return plain_http.get(url).status_code
    except httpx.TransportError as error:
        return repr(error)


def memory_of(process: psutil.Process) -> MemoryReader:
    """Returns the reader of the memory (RSS) of a process."""

    async def read() -> float:
        return float(process.memory_info().rss) / 1e6

    return read


def memory_of_redis(raw: redis.asyncio.Redis) -> MemoryReader:
    """Returns the reader of the memory that a Redis uses, with the buffers of its clients."""

    async def read() -> float:
        return int((await raw.info("memory"))["used_memory"]) / 1e6

    return read


@asynccontextmanager
async def measure_growth(*readers: MemoryReader) -> AsyncIterator[list[float]]:
    """Reads memory during the block; fills the list after it: by how much (MB) each reader's peak exceeds its start."""
    growths_mb: list[float] = []
    starts = [await read() for read in readers]
    peaks = list(starts)

    stopped = asyncio.Event()

    async def sample() -> None:
        while not stopped.is_set():
            await asyncio.sleep(SAMPLE_S)
            peaks[:] = [max(peak, await read()) for peak, read in zip(peaks, readers, strict=True)]

    sampling = asyncio.create_task(sample())
    try:
        yield growths_mb
    finally:
        stopped.set()  # not cancelled: redis-py may swallow that before Python 3.12, and the loop would go on for ever
        await sampling
    growths_mb += [peak - start for peak, start in zip(peaks, starts, strict=True)]


def p99_of(latencies_s: list[float]) -> float:
    """Returns the 99th percentile of latencies (s), in ms. Raises AssertionError: there are too few of them."""
    assert len(latencies_s) >= MIN_PROBES
    return 1e3 * sorted(latencies_s)[int(0.99 * (len(latencies_s) - 1))]


def fault_name(fault: str, way_name: str) -> str:
    """Returns the name of a fault in the table, with the way over which it comes unless that is direct."""
    return fault if way_name == DIRECTLY else f"{fault}, {way_name}"
