"""The engine's pipeline with an adaptive wait: clients that ask again when they are answered, and one that does not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from statistics import fmean

import pytest

from gpuworker.backends.simulated import HashingBackend
from gpuworker.policy.batching import Limits
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import Ran, Told, Work
from gpuworker.models import parse_model
from tests.unit.gpuworker.engine.scripted import work

AUTO = Limits(64, 1_000, wait_s=None)
CLIENTS = 8
ROUNDS = 40


class Crowd:
    """Clients in a closed loop around a pipeline whose batches take a time by formula."""

    def __init__(self, limits: Limits, runners: int = 1) -> None:
        self.sizes: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[Work]] = {}
        self._names = itertools.count()
        backend = HashingBackend(parse_model("simulated:base_ms=15,item_ms=0.1"))
        backend.runners, backend.ahead = runners, runners == 1
        self._pipeline = Pipeline(backend, limits, Told(lambda _keys: None, self._ran, lambda: None))
        self._pipeline.start()

    async def run(self) -> Sequence[int]:
        """Has each client ask ROUNDS times; returns the sizes of the batches once the engine knew the clients."""
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))
        return self.sizes[len(self.sizes) // 2 :]

    async def _client(self) -> None:
        for _ in range(ROUNDS):
            key = f"{next(self._names)}"
            self._answers[key] = answer = self._loop.create_future()
            self._pipeline.add([work(key)])
            assert (await answer).left == 0

    def _ran(self, ran: Ran) -> None:
        self.sizes.append(ran.size)
        for each in ran.done:
            self._loop.call_soon_threadsafe(self._answers.pop(each.key).set_result, each)


@pytest.mark.exclusive
async def test_clients_that_take_turns_are_joined() -> None:
    """On a device whose batches take about as long whatever their size, batches become larger than without a wait."""
    none = await Crowd(Limits(64, 1_000)).run()
    adaptive = await Crowd(AUTO).run()
    assert fmean(adaptive) > 1.3 * fmean(none)


async def test_several_runners_answer_everybody() -> None:
    """Whoever of them waits, each input runs once, and as many run as were sent."""
    crowd = Crowd(AUTO, runners=3)
    await crowd.run()
    assert sum(crowd.sizes) == CLIENTS * ROUNDS
