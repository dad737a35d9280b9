"""When an engine hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuworker.consumer.inflight import InFlightEntry
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.policy.hang_timeout import HangTimeout
from gpuworker.settings import WorkerSettings
from gpuworker.watchdog import Watchdog
from shared.messages import Entry, Ref
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

LIMIT_S = 0.5


class Engine(SimpleNamespace):
    """Takes the place of an engine: counts how often it is killed."""

    def __init__(self) -> None:
        super().__init__(ready=True, last_message_at=time.monotonic(), kills=0)

    def kill(self) -> None:
        """Counts."""
        self.kills += 1


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[WorkerState, Engine, list[InFlightEntry]]]:
    """A watchdog, what it watches, and three entries that are held."""
    state = WorkerState(WorkerSettings(model="null"), "w")
    refs = [Ref(0, f"{number}-0".encode(), 1, 1) for number in range(3)]
    held = [state.in_flight.add(Entry(each, 1, "r", 0, 10**12, "", "", b""), 0, ("text",)) for each in refs]
    timeout = HangTimeout(LIMIT_S, 0.0)
    timeout.record_batch(0.001, 0.001)
    engine = Engine()
    watchdog = Watchdog(state, cast("Any", engine), timeout, cast("Any", SimpleNamespace(is_waiting=False)))
    task = asyncio.create_task(watchdog.run())
    try:
        yield state, engine, held
    finally:
        task.cancel()


async def test_an_engine_that_begins_runs_is_not_silent() -> None:
    """It preprocesses one input after another, and completes no batch for longer than the limit."""
    async with watched() as (state, engine, held):
        until = time.monotonic() + 3 * LIMIT_S
        while time.monotonic() < until:
            state.in_flight.runs.begin([held[0].slot])
            await asyncio.sleep(0.05)
            state.in_flight.runs.end([held[0].slot])
        assert engine.kills == 0
        await wait_until(lambda: engine.kills > 0, "it is silent, and killed")


async def test_one_run_hangs_beside_others_that_end() -> None:
    """The entry that hung knows for how long."""
    async with watched() as (state, engine, held):
        state.in_flight.runs.begin([held[1].slot])
        while not engine.kills:
            engine.last_message_at = time.monotonic()
            state.in_flight.runs.begin([held[0].slot])
            await asyncio.sleep(0.02)
            state.in_flight.runs.end([held[0].slot])
        hang = held[1].hang
        assert hang is not None
        assert (hang.limit_s, hang.ran_s > LIMIT_S, held[2].hang) == (LIMIT_S, True, None)
