"""More requests than the fleet can do (F17)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import Scene

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=5,item_ms=20"
BATCH = 8
PEAK = 1_000 * BATCH / (5 + 20 * (BATCH - 1))
"""Requests a second: batches that are full, one after the other."""

TIMEOUT_MS = 2_000
GOOD = 0.9


async def bench(url: str, out: Path, *arguments: str) -> dict[str, Any]:
    """Runs `redbatch bench` in a process of its own; returns what it measured."""
    command = [sys.executable, "-m", "redbatch", "bench", url, "--out", str(out), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("times", [2, 10])
async def test_overload_is_refused_and_the_rest_served(scene: Scene, times: int, tmp_path: Path) -> None:
    """F17: an open loop at twice and ten times what the fleet can do. What is taken is answered in time."""
    await scene.open(gateways=1, workers=1, model=MODEL, max_batch_size=BATCH)
    seconds = scene.times(8, 30)
    common = ["--mix", "short", "--timeout-ms", str(TIMEOUT_MS), "--duration", f"{seconds}s", "--warmup", "3s"]
    found = await bench(scene.gateways[0].url, tmp_path / "out.json", "--rate", str(times * PEAK), *common)
    measured = found["measured"]
    goodput = measured["ok"] / measured["window_s"] / PEAK
    expired = await scene.total('redbatch_failures_total{code="deadline_exceeded"}')
    figures = {"of_peak": round(goodput, 3), "p99_ms": measured["latency_ms"]["p99"], "expired": int(expired)}
    scene.rows.append(
        {
            "fault": f"F17 {times} × overload",
            "calls": measured["requests"],
            "lost": 0,
            "misrouted": 0,
            "late": measured["late"],
        }
        | {"slowest_s": round(measured["latency_ms"]["max"] / 1000, 2)}
        | figures
        | {"errors": measured["errors"]}
    )
    assert set(measured["errors"]) <= {"overloaded", "queue_full"}
    assert goodput >= GOOD
    assert measured["latency_ms"]["p99"] <= TIMEOUT_MS
    assert expired == 0
