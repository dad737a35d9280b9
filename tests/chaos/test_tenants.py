"""One tenant that requests far more than its share (F18)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.load import open_loop
from tests.chaos.scenario import Scenario, on_shards
from tests.stall_detector import StallDetector

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive]

MODEL = "simulated:base_ms=100,item_ms=2"
"""As on a GPU, a full batch takes about as long as a small one."""

BATCH = 8
PEAK = 1_000 * BATCH / (100 + 2 * (BATCH - 1))
"""Requests per second with consecutive full batches."""

SHARE = PEAK / 2
MODEST_SHARE = 0.7
"""Load of the other tenant, as a fraction of its share."""

GREEDY_FACTOR = 10
"""Load of the greedy tenant, as a multiple of its share; in the baseline it requests its share."""

TIMEOUT_MS = 4_000
WARMUP_S = 8.0
"""Time until the fleet's rate is measured for the first time."""

MAX_RATIO = 1.2
"""Maximum ratio of the other tenant's p99 to its baseline."""

TRIES, MAX_STILL_S = 3, 0.1
"""The test is repeated if the machine stalled for longer."""

SECONDS, BRIEF_SECONDS = 40, 10


@on_shards
async def test_a_greedy_tenant_delays_no_other(scenario: Scenario, tmp_path: Path) -> None:
    """F18: when one of two tenants requests ten times its share, the other's p99 and its answers stay as they were.

    The greedy one gets all the capacity that the other leaves. Without names, both wait in one queue. Of two shards,
    each tenant is on another one.
    """
    await scenario.start(gateways=2, workers=1, model=MODEL, max_batch_size=BATCH)
    for _ in range(TRIES):
        with StallDetector() as still:
            modest, _ = await measure_both(scenario, 1, tmp_path)
            other, greedy = await measure_both(scenario, GREEDY_FACTOR, tmp_path)
        ratio = p99(other) / p99(modest)
        if still.longest_s < MAX_STILL_S or ratio <= MAX_RATIO:
            break
    nameless, _ = await measure_both(scenario, GREEDY_FACTOR, tmp_path, named=False)
    done = sum(each["ok"] / each["window_s"] for each in (other, greedy)) / PEAK
    figures: dict[str, object] = {"baseline_p99_ms": round(p99(modest)), "others_p99_ms": round(p99(other))}
    figures |= {"ratio": round(ratio, 2), "of_peak": round(done, 2)}
    figures["without_names_p99_ms"] = round(p99(nameless))
    calls = other["requests"] + greedy["requests"]
    scenario.note(f"F18 a tenant at {GREEDY_FACTOR} × its share", calls=calls, **figures, refused=greedy["errors"])
    assert other["errors"] == {}
    assert ratio <= MAX_RATIO
    assert done >= 0.8
    assert set(greedy["errors"]) <= {"overloaded", "queue_full", "deadline_exceeded"}


async def measure_both(
    scenario: Scenario, times: float, folder: Path, *, named: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs both tenants, each at one gateway, the greedy one at a multiple of its share; returns their measurements."""
    seconds = SECONDS if named else BRIEF_SECONDS

    async def run(number: int, name: str, rate: float) -> dict[str, Any]:
        arguments = ["--rate", str(rate), "--mix", "short", "--timeout-ms", str(TIMEOUT_MS)]
        arguments += ["--duration", f"{seconds}s", "--warmup", f"{WARMUP_S}s"]
        if named:
            arguments += ["--header", f"X-Tenant: {name}"]
        measured: dict[str, Any] = (await open_loop(scenario.gateways[number].url, folder / name, *arguments))[
            "measured"
        ]
        return measured

    found = await asyncio.gather(run(0, "modest", MODEST_SHARE * SHARE), run(1, "greedy", times * SHARE))
    await scenario.wait_until_drained()
    return found


def p99(measured: dict[str, Any]) -> float:
    """Returns the p99 latency in ms."""
    return float(measured["latency_ms"]["p99"])
