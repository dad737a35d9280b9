"""How long other clients wait during an attack on a gateway, and its memory."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import DIRECTLY

ROOT = Path(__file__).parents[2]
MIN_PROBES = 100
"""Minimum number of probes: with fewer, the p99 would be the maximum."""


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


async def peak_mb(process: psutil.Process, seconds: float) -> float:
    """Returns the largest memory (RSS, MB) that a process has during a number of seconds."""
    until, peak = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        peak = max(peak, process.memory_info().rss)
        await asyncio.sleep(0.05)
    return peak / 1e6


def p99_of(latencies_s: list[float]) -> float:
    """Returns the 99th percentile of latencies (s), in ms. Raises AssertionError: there are too few of them."""
    assert len(latencies_s) >= MIN_PROBES
    return 1e3 * sorted(latencies_s)[int(0.99 * (len(latencies_s) - 1))]


def fault_name(fault: str, way_name: str) -> str:
    """Returns the name of a fault in the table, with the way over which it comes unless that is direct."""
    return fault if way_name == DIRECTLY else f"{fault}, {way_name}"
