"""Inputs that kill the engine: only they fail, at their third attempt (F4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared import dead_letters
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.chaos.scenario import Scenario, all_correct, on_operations, worker_name
from tests.chaos.test_workers import engine_of
from tests.processes import Program

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.leaves_dead_letters]

POISON = "poison"
SLOW = "simulated:base_ms=400,item_ms=1"
ATTEMPTS = 3


@dataclass
class EngineKiller:
    """Simulates poisonous inputs: kills the engine of a worker whenever it reports that it runs one of them.

    Attributes:
        kills: number of kills for each entry.
    """

    scenario: Scenario
    kills: Counter[str] = field(default_factory=Counter)

    async def run(self, stop: asyncio.Event) -> None:
        """Kills engines until the event is set."""
        while not stop.is_set():
            poisoned = await self._poisoned()
            for worker in self.scenario.workers:
                await self._check(worker, poisoned)
            await asyncio.sleep(0.002)

    async def _poisoned(self) -> set[str]:
        rows: Any = [
            (at, await self.scenario.raw.xrange(lane)) for at, lane in enumerate(self.scenario.cluster.keys.lanes)
        ]
        return {
            f"{at}/{entry_id.decode()}"
            for at, entries in rows
            for entry_id, fields in entries
            if POISON.encode() in fields[b"body"]
        }

    async def _check(self, worker: Program, poisoned: set[str]) -> None:
        key = self.scenario.cluster.keys.begun(worker_name(worker))
        written: Any = await self.scenario.raw.get(key)
        runs = set((written or b"").decode().split())
        engine = engine_of(worker) if runs & poisoned else None
        if engine is not None:
            await self.scenario.raw.delete(key)  # first: the next engine may soon report the same entry again
            engine.kill()
            self.kills.update(runs & poisoned)


@on_operations
async def test_inputs_that_kill_the_engine_fail_alone(scenario: Scenario, queue: QueueConnections) -> None:
    """F4: each poisonous request fails at its third attempt and becomes a dead letter; all others are answered."""
    await scenario.start(gateways=1, workers=2, model=SLOW)
    number, stop = scenario.repeats(2, 10), asyncio.Event()
    killer, url = EngineKiller(scenario), scenario.gateways[0].url + scenario.operation.path
    killing = asyncio.create_task(killer.run(stop))
    try:
        async with scenario.load(clients=24, timeout_s=60) as calls, plain_http.client(timeout=70) as client:
            answers = await asyncio.gather(
                *(
                    client.post(url, json=scenario.operation.body(f"{POISON} {i}"), headers={"x-timeout-ms": "60000"})
                    for i in range(number)
                )
            )
    finally:
        stop.set()
        await killing
    letters = await dead_letters.read(queue.connection("look"), queue.keys, 100)
    verdict = scenario.judge(
        "F4 inputs kill the engine", calls, poison=number, kills=killer.kills.total(), dead_letters=len(letters)
    )
    assert [(each.status_code, each.json()["error"]["code"]) for each in answers] == [(500, "input_failed")] * number
    assert all_correct(verdict)
    assert [letter.attempts for letter in letters] == [ATTEMPTS] * number
    assert killer.kills.total() >= 2 * number, "too few engines were killed"
