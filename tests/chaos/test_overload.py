"""More requests than the fleet can process (F17)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.history import LATE_S
from tests.chaos.load import open_loop
from tests.chaos.scenario import Scenario, metric, on_shards
from tests.stall_detector import StallDetector

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.exclusive]

MODEL = "simulated:base_ms=5,item_ms=20"
BATCH = 8
PEAK = 1_000 * BATCH / (5 + 20 * (BATCH - 1))
"""Requests per second with consecutive full batches."""

TIMEOUT_MS = 2_000
WARMUP_S, BRIEF_WARMUP_S = 8.0, 5.0
"""Time until the fleet's rate is measured for the first time, and requests that were accepted before have expired."""

START_S = 2.0
"""Time until the load begins: its process has to start."""

MIN_GOODPUT = 0.9
"""Minimum share of the peak that is answered."""

MAX_WASTED = 0.01
"""Maximum share of runs that end after the deadline of their request, because they began just before it."""

MAX_EXPIRED = 0.01
"""Maximum share of accepted requests that end with a 504, because the wait was estimated too low: the percent above
p99."""

BRIEF_MIN_GOODPUT, BRIEF_MAX_WASTED = 0.6, 0.1
"""The same in the short form, whose few seconds may include some in which the machine stalls."""

TRIES, MAX_STILL_S = 3, 0.1
"""The test is repeated if the machine stalled for longer: waiting requests have no more time to spare than that."""


@pytest.mark.long
@on_shards
@pytest.mark.parametrize("times", [2, 10])
async def test_overload_is_refused_and_the_rest_served(scenario: Scenario, times: int, tmp_path: Path) -> None:
    """F17: accepted requests are answered in time when an open loop offers 2 or 10 times the fleet's capacity."""
    await scenario.start(gateways=1, workers=1, model=MODEL, max_batch_size=BATCH)
    for _ in range(TRIES):
        with StallDetector() as still:
            measured, ran, answered = await load(scenario, times, tmp_path / "out.json")
        if still.longest_s < MAX_STILL_S:
            break
    goodput, p99_ms = measured["ok"] / measured["window_s"] / PEAK, measured["latency_ms"]["p99"]
    slowest_s = round(measured["latency_ms"]["max"] / 1000, 2)
    figures = {"of_peak": round(goodput, 3), "p99_ms": round(p99_ms), "ran": int(ran), "answered": int(answered)}
    expired = measured["errors"].get("deadline_exceeded", 0)
    late = measured["late"] if slowest_s > TIMEOUT_MS / 1000 + LATE_S else 0  # `late` counts errors, too
    figures |= {"calls": measured["requests"], "late": late, "slowest_s": slowest_s}
    scenario.note(f"F17 {times} × overload", **figures, refused=measured["errors"])
    assert set(measured["errors"]) <= {"overloaded", "queue_full", "deadline_exceeded"}
    assert expired <= MAX_EXPIRED * measured["ok"], f"the machine stalled for {still.longest_s:.2f} s"
    assert late <= (0 if scenario.thorough else MAX_EXPIRED * measured["ok"])
    good, wasted = (MIN_GOODPUT, MAX_WASTED) if scenario.thorough else (BRIEF_MIN_GOODPUT, BRIEF_MAX_WASTED)
    assert goodput >= good
    assert p99_ms <= TIMEOUT_MS
    assert ran - answered <= wasted * ran + BATCH


async def load(scenario: Scenario, times: int, out: Path) -> tuple[dict[str, Any], float, float]:
    """Offers a multiple of the peak; returns the measurements, the inputs that ran, and the answered requests."""
    arguments = ["--rate", str(times * PEAK), "--mix", "short", "--timeout-ms", str(TIMEOUT_MS)]
    warmup_s = WARMUP_S if scenario.thorough else BRIEF_WARMUP_S
    arguments += ["--duration", f"{scenario.repeats(6, 20)}s", "--warmup", f"{warmup_s}s"]
    running = asyncio.create_task(open_loop(scenario.gateways[0].url, out, *arguments))
    await asyncio.sleep(START_S + warmup_s)
    before = await counts(scenario)
    measured = (await running)["measured"]
    ran, answered = (now - then for now, then in zip(await counts(scenario), before, strict=True))
    return measured, ran, answered


async def counts(scenario: Scenario) -> tuple[float, float]:
    """Returns the numbers of inputs that have run and of requests that were answered with a vector."""
    answered = await metric(scenario.gateways[0].program, 'redbatch_requests_total{route="/embed",status="200"}')
    return await scenario.worker_metric("redbatch_inputs_total"), answered
