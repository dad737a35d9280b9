"""Inputs that kill the engine: they fail alone, and the third time (F4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared import dead_letters
from shared.queue import Queue
from tests import plain_http
from tests.chaos.scenario import Scene, name_of, whole
from tests.chaos.test_workers import engine_of
from tests.integration.gateway.house import error_of
from tests.processes import Program

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.buries]

POISON = "poison"
SLOW = "simulated:base_ms=400,item_ms=1"
ATTEMPTS = 3


@dataclass
class Executioner:
    """Plays the inputs that kill: whenever a worker says that it runs one of them, its engine dies.

    Attributes:
        kills: how often each entry has killed.
    """

    scene: Scene
    kills: Counter[str] = field(default_factory=Counter)

    async def run(self, over: asyncio.Event) -> None:
        """Works until told that it is over."""
        while not over.is_set():
            poisoned = await self._poisoned()
            for worker in self.scene.workers:
                await self._look(worker, poisoned)
            await asyncio.sleep(0.002)

    async def _poisoned(self) -> set[str]:
        rows: Any = [(at, await self.scene.raw.xrange(lane)) for at, lane in enumerate(self.scene.house.keys.lanes)]
        return {
            f"{at}/{entry_id.decode()}"
            for at, entries in rows
            for entry_id, fields in entries
            if POISON.encode() in fields[b"body"]
        }

    async def _look(self, worker: Program, poisoned: set[str]) -> None:
        key = self.scene.house.keys.begun(name_of(worker))
        written: Any = await self.scene.raw.get(key)
        runs = set((written or b"").decode().split())
        engine = engine_of(worker) if runs & poisoned else None
        if engine is not None:
            await self.scene.raw.delete(key)  # first: the next engine may soon run the same again, and say so
            engine.kill()
            self.kills.update(runs & poisoned)


async def test_inputs_that_kill_the_engine_fail_alone(scene: Scene, queue: Queue) -> None:
    """F4: each of them fails at its third attempt, and becomes a dead letter. All others have their vectors."""
    await scene.open(gateways=1, workers=2, model=SLOW)
    number, over = scene.times(2, 10), asyncio.Event()
    executioner = Executioner(scene)
    killing = asyncio.create_task(executioner.run(over))
    try:
        async with scene.load(clients=24, timeout_s=60) as calls, plain_http.client(timeout=70) as client:
            answers = await asyncio.gather(
                *(scene.gateways[0].send(client, f"{POISON} {i}", x_timeout_ms="60000") for i in range(number))
            )
    finally:
        over.set()
        await killing
    letters = await dead_letters.read(queue.link("look"), queue.keys, 100)
    verdict = scene.judge(
        "F4 inputs kill the engine", calls, poison=number, kills=executioner.kills.total(), dead_letters=len(letters)
    )
    assert [(each.status_code, error_of(each)["code"]) for each in answers] == [(500, "input_failed")] * number
    assert whole(verdict)
    assert [letter.attempts for letter in letters] == [ATTEMPTS] * number
    assert executioner.kills.total() >= 2 * number, "they killed"
