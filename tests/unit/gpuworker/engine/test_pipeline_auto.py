"""The engine's pipeline with an adaptive wait, and clients that send a request when their last one is answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from statistics import fmean

import pytest

from gpuworker.backends.simulated import SimulatedBackend
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import BatchResult, EntryTask, Reports
from gpuworker.ipc.run_table import RunTable
from gpuworker.model_spec import parse_model
from gpuworker.policy.limits import Limits
from tests.unit.gpuworker.engine.scripted import entry_task

AUTO = Limits(64, 1_000, wait_s=None)
CLIENTS = 8
ROUNDS = 40


class Crowd:
    """Clients in a closed loop around a pipeline whose batches take a time by formula."""

    def __init__(self, limits: Limits, runners: int = 1) -> None:
        self.sizes: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[EntryTask]] = {}
        self._names = itertools.count()
        backend = SimulatedBackend(parse_model("simulated:base_ms=15,item_ms=0.1"))
        backend.runners, backend.prepares_ahead = runners, runners == 1
        self._pipeline = Pipeline(backend, limits, Reports(lambda result, _: self._record(result), RunTable()))
        self._pipeline.start()

    async def run(self) -> Sequence[int]:
        """Has each client send ROUNDS requests; returns the batch sizes of the second half, when clients are known."""
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))
        return self.sizes[len(self.sizes) // 2 :]

    async def _client(self) -> None:
        for _ in range(ROUNDS):
            key = f"{next(self._names)}"
            self._answers[key] = answer = self._loop.create_future()
            self._pipeline.add([entry_task(key)])
            assert (await answer).num_pending == 0

    def _record(self, result: BatchResult) -> None:
        self.sizes.append(result.size)
        for each in result.completed:
            self._loop.call_soon_threadsafe(self._answers.pop(each.key).set_result, each)


@pytest.mark.exclusive
async def test_clients_that_take_turns_are_joined() -> None:
    """On a device where the size of a batch hardly changes its time, batches become larger than without a wait."""
    none = await Crowd(Limits(64, 1_000)).run()
    adaptive = await Crowd(AUTO).run()
    assert fmean(adaptive) > 1.3 * fmean(none)


async def test_several_runners_answer_every_client() -> None:
    """Each input runs once, whichever runner waits."""
    crowd = Crowd(AUTO, runners=3)
    await crowd.run()
    assert sum(crowd.sizes) == CLIENTS * ROUNDS
