"""Workers that die in the midst of their work: others answer the same open calls, in time (F1)."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from typing import Any

import pytest
import redis.asyncio

from shared.keys import GROUP, Keys
from tests.chaos.history import judge
from tests.chaos.load import load
from tests.integration.gateway.house import House, lines_of
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MODEL = "simulated:base_ms=20,item_ms=1"
SETTINGS: dict[str, Any] = {
    "reclaim_idle_ms": 1_000,
    "renew_ms": 200,
    "heartbeat_s": 0.5,
    "heartbeat_ttl_s": 2.0,
    "max_batch_size": 8,
    "claim_window": 16,
}
BOUND_S = 1.5
"""The reclaim's idle bound and the time until somebody looks (a third of it)."""

MARGIN_S = 1.0
LEAST_S, MOST_S = 0.02, 0.25


def name_of(worker: Program) -> str:
    """Returns the name under which a worker is in the group."""
    return str(next(line["worker"] for line in lines_of(worker) if line["msg"] == "worker starts"))


async def owed(raw: redis.asyncio.Redis, keys: Keys, worker: str) -> int:
    """Returns how many entries a worker has claimed and not committed."""
    return len(await raw.xpending_range(keys.lanes[0], GROUP, "-", "+", 1_000, consumername=worker))


async def test_calls_survive_the_death_of_their_worker(house: House, raw: redis.asyncio.Redis, thorough: bool) -> None:
    """F1: one of three workers is killed with -9 at a random moment, again and again, and another takes its place."""
    kills = 100 if thorough else 6
    dice = random.Random(kills)
    gateways = [await house.gateway() for _ in range(2)]
    workers = [await house.worker(MODEL, **SETTINGS) for _ in range(3)]
    await wait_until(lambda: not any(each.missing() for each in gateways), "the gateways see a worker")
    struck, recoveries = 0, []
    async with load([each.url for each in gateways], clients=48) as calls:
        for _ in range(kills):
            await asyncio.sleep(dice.uniform(LEAST_S, MOST_S))
            victim = workers.pop(dice.randrange(len(workers)))
            name = name_of(victim)
            victim.signal(signal.SIGSTOP)
            left = await owed(raw, house.keys, name)
            struck += left > 0
            victim.kill()
            began = time.monotonic()

            async def taken_over(name: str = name) -> bool:
                return await owed(raw, house.keys, name) == 0

            await wait_until(taken_over, "others have taken its entries", timeout_s=20)
            recoveries.append(time.monotonic() - began if left else 0.0)
            workers.append(await house.worker(MODEL, **SETTINGS))
    living = {name_of(each) for each in workers}

    async def only_the_living() -> bool:
        rows: Any = await raw.xinfo_consumers(house.keys.lanes[0], GROUP)
        return {row["name"].decode() for row in rows} <= living

    await wait_until(only_the_living, "the names of the dead have left the group", timeout_s=10)
    verdict = judge(calls)
    sys.stdout.write(
        f"{verdict.calls} calls, {kills} kills, {struck} amid work, taken over after {max(recoveries):.2f} s at most, "
        f"slowest call {verdict.slowest_s:.2f} s\n"
    )
    assert struck >= 0.8 * kills, "the kills struck"
    assert (verdict.lost, verdict.misrouted, verdict.late, dict(verdict.others)) == (0, 0, 0, {})
    assert max(recoveries) <= BOUND_S + MARGIN_S
