"""More requests than the fleet can do (F17)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.load import open_loop
from tests.chaos.scenario import Scene, metric
from tests.stillness import Stillness

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.alone]

MODEL = "simulated:base_ms=5,item_ms=20"
BATCH = 8
PEAK = 1_000 * BATCH / (5 + 20 * (BATCH - 1))
"""Requests a second: batches that are full, one after the other."""

TIMEOUT_MS = 2_000
WARMUP_S, BRIEF_WARMUP_S = 8.0, 5.0
"""Until then the fleet's rate is measured for the first time, and what was taken before has expired."""

START_S = 2.0
"""Until the load begins: a process has to start."""

GOOD = 0.9
"""Share of the peak that is answered."""

IN_VAIN = 0.01
"""Share of the runs whose answer nobody waits for any more: what began just before its deadline."""

LATE = 0.01
"""Share of those that are taken and are not answered in time: what p99 leaves."""

BRIEF_GOOD, BRIEF_IN_VAIN = 0.6, 0.1
"""The same in the short form: of a few seconds, in some of which a machine may stand still."""

TRIES, STILL_S = 3, 0.1
"""It is done again when the machine stood still: what waits has no more than that to spare of its time."""


@pytest.mark.long
@pytest.mark.parametrize("times", [2, 10])
async def test_overload_is_refused_and_the_rest_served(scene: Scene, times: int, tmp_path: Path) -> None:
    """F17: an open loop at twice and ten times what the fleet can do. What is taken is answered in time."""
    await scene.open(gateways=1, workers=1, model=MODEL, max_batch_size=BATCH)
    for _ in range(TRIES):
        with Stillness() as still:
            measured, ran, answered = await load(scene, times, tmp_path / "out.json")
        if still.longest_s < STILL_S:
            break
    goodput, p99_ms = measured["ok"] / measured["window_s"] / PEAK, measured["latency_ms"]["p99"]
    slowest_s = round(measured["latency_ms"]["max"] / 1000, 2)
    figures = {"of_peak": round(goodput, 3), "p99_ms": round(p99_ms), "ran": int(ran), "answered": int(answered)}
    figures |= {"calls": measured["requests"], "late": measured["late"], "slowest_s": slowest_s}
    scene.note(f"F17 {times} × overload", **figures, refused=measured["errors"])
    expired = measured["errors"].get("deadline_exceeded", 0)
    assert set(measured["errors"]) <= {"overloaded", "queue_full", "deadline_exceeded"}
    assert expired <= LATE * measured["ok"], f"it stood still for {still.longest_s:.2f} s"
    good, in_vain = (GOOD, IN_VAIN) if scene.thorough else (BRIEF_GOOD, BRIEF_IN_VAIN)
    assert goodput >= good
    assert p99_ms <= TIMEOUT_MS
    assert ran - answered <= in_vain * ran + BATCH


async def load(scene: Scene, times: int, out: Path) -> tuple[dict[str, Any], float, float]:
    """Offers so many times the peak; returns what was measured, and how many inputs were run and requests answered."""
    arguments = ["--rate", str(times * PEAK), "--mix", "short", "--timeout-ms", str(TIMEOUT_MS)]
    warmup_s = WARMUP_S if scene.thorough else BRIEF_WARMUP_S
    arguments += ["--duration", f"{scene.times(6, 20)}s", "--warmup", f"{warmup_s}s"]
    running = asyncio.create_task(open_loop(scene.gateways[0].url, out, *arguments))
    await asyncio.sleep(START_S + warmup_s)
    before = await counts(scene)
    measured = (await running)["measured"]
    ran, answered = (now - then for now, then in zip(await counts(scene), before, strict=True))
    return measured, ran, answered


async def counts(scene: Scene) -> tuple[float, float]:
    """Returns how many inputs were run so far, and how many requests answered with a vector."""
    answered = await metric(scene.gateways[0].program, 'redbatch_requests_total{route="/embed",status="200"}')
    return await scene.total("redbatch_inputs_total"), answered
