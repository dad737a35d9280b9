"""When a worker records what runs: soon after it began, and not for what ends at once."""

from __future__ import annotations

import asyncio
from typing import cast
from unittest.mock import Mock

import pytest

from gpuworker.consumer.in_progress_marker import MARK_DELAY_S, InProgressMarker
from gpuworker.consumer.inflight import InFlightEntries
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.settings import WorkerSettings
from shared import consumer
from shared.connection import RedisConnection
from shared.keys import Keys
from shared.messages import Entry, Ref
from shared.process.tasks import cancel_and_wait
from tests.waiting import wait_until

NO_REDIS = cast("RedisConnection", None)


def add(in_flight: InFlightEntries, number: int) -> str:
    """Adds an entry that runs; returns its key."""
    entry = Entry(Ref(0, b"%d-0" % number, 1, 1), 1, f"r{number}", 0, 10**12, "", "", b"")
    held = in_flight.add(entry, 0, ("text",))
    in_flight.runs.begin([held.slot])
    return held.key


async def test_what_runs_for_a_while_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again when another one runs, and it does not wake while nothing is held."""
    recorded: list[list[str]] = []

    async def mark_begun(*args: object) -> None:
        recorded.append([entry.request_id for entry in cast("list[Entry]", args[-1])])

    monkeypatch.setattr(consumer, "mark_begun", mark_begun)
    state = WorkerState(WorkerSettings(model="null"), "w", InFlightEntries())
    marker = InProgressMarker(ShardState(state, Keys("null"), NO_REDIS), NO_REDIS)
    running, in_flight = asyncio.create_task(marker.run()), state.in_flight
    looks = Mock(wraps=in_flight.running)
    monkeypatch.setattr(in_flight, "running", looks)
    try:
        await asyncio.sleep(0)
        in_flight.remove([add(in_flight, 1)])
        await asyncio.sleep(3 * MARK_DELAY_S)
        assert (recorded, looks.call_count) == ([], 1), "it looks once at the start"
        first = add(in_flight, 2)
        await wait_until(lambda: recorded == [["r2"]], "the first is recorded")
        add(in_flight, 3)
        await wait_until(lambda: recorded[-1] == ["r2", "r3"], "both are recorded")
        in_flight.remove([first])
        await asyncio.sleep(3 * MARK_DELAY_S)
        assert recorded == [["r2"], ["r2", "r3"]]
    finally:
        await cancel_and_wait([running])
