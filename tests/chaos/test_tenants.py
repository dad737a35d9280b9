"""One tenant that asks for far more than its share (F18)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.load import open_loop
from tests.chaos.scenario import Scene
from tests.stillness import Stillness

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.alone]

MODEL = "simulated:base_ms=100,item_ms=2"
"""As on a GPU, a batch takes about the same time whether it is full or not."""

BATCH = 8
PEAK = 1_000 * BATCH / (100 + 2 * (BATCH - 1))
"""Requests a second: batches that are full, one after the other."""

SHARE = PEAK / 2
MODEST = 0.7
"""Of its share is what the other tenant asks for."""

TIMES = 10
"""So many times its share is what the greedy one asks for; at first it asks for its share."""

TIMEOUT_MS = 4_000
WARMUP_S = 8.0
"""Until then the fleet's rate is measured for the first time."""

BOUND = 1.2
"""Of the other tenant's p99."""

TRIES, STILL_S = 3, 0.1
"""It is done again when the machine stood still."""

SECONDS, BRIEF_SECONDS = 40, 10


async def test_a_greedy_tenant_holds_nobody_up(scene: Scene, tmp_path: Path) -> None:
    """F18: one of two tenants asks for ten times its share; the other's p99 stays what it was, and so do its answers.

    The greedy one has all that the other leaves. Without names, both wait in one line.
    """
    await scene.open(gateways=2, workers=1, model=MODEL, max_batch_size=BATCH)
    for _ in range(TRIES):
        with Stillness() as still:
            modest, _ = await both(scene, 1, tmp_path)
            beside, greedy = await both(scene, TIMES, tmp_path)
        ratio = p99(beside) / p99(modest)
        if still.longest_s < STILL_S or ratio <= BOUND:
            break
    nameless, _ = await both(scene, TIMES, tmp_path, named=False)
    done = sum(each["ok"] / each["window_s"] for each in (beside, greedy)) / PEAK
    figures: dict[str, object] = {"baseline_p99_ms": round(p99(modest)), "others_p99_ms": round(p99(beside))}
    figures |= {"ratio": round(ratio, 2), "of_peak": round(done, 2)}
    figures["without_names_p99_ms"] = round(p99(nameless))
    calls = beside["requests"] + greedy["requests"]
    scene.note(f"F18 a tenant at {TIMES} × its share", calls=calls, **figures, refused=greedy["errors"])
    assert beside["errors"] == {}
    assert ratio <= BOUND
    assert done >= 0.8
    assert set(greedy["errors"]) <= {"overloaded", "queue_full", "deadline_exceeded"}


async def both(
    scene: Scene, times: float, folder: Path, *, named: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Has both tenants ask, at a gateway each, one for so many times its share; returns what each measured."""
    seconds = SECONDS if named else BRIEF_SECONDS

    async def ask(number: int, name: str, rate: float) -> dict[str, Any]:
        arguments = ["--rate", str(rate), "--mix", "short", "--timeout-ms", str(TIMEOUT_MS)]
        arguments += ["--duration", f"{seconds}s", "--warmup", f"{WARMUP_S}s"]
        if named:
            arguments += ["--header", f"X-Tenant: {name}"]
        measured: dict[str, Any] = (await open_loop(scene.gateways[number].url, folder / name, *arguments))["measured"]
        return measured

    found = await asyncio.gather(ask(0, "modest", MODEST * SHARE), ask(1, "greedy", times * SHARE))
    await scene.drained()
    return found


def p99(measured: dict[str, Any]) -> float:
    """Returns what 99 % of the answers took at most, in ms."""
    return float(measured["latency_ms"]["p99"])
