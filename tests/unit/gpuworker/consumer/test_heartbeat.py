"""What a worker reports of itself: that it is up, and that it is alive."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from gpuworker.consumer import heartbeat
from gpuworker.consumer.heartbeat import HeartbeatSender
from gpuworker.consumer.worker_state import WorkerState
from gpuworker.ipc.messages import Ready
from gpuworker.settings import WorkerSettings
from shared.keys import Keys
from shared.process.tasks import cancel_and_wait

MODEL = "null"
TICK_S, STUCK_S = 0.01, 0.2
"""Shorter than in production."""


class HangingConnection:
    """A connection to a Redis that accepts a command and never answers, whatever the timeout."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def run(self, *_args: object) -> None:
        """Never answers."""
        self.called.set()
        await asyncio.Event().wait()


def create_sender(worker: str, connection: object = None) -> HeartbeatSender:
    """Returns the heartbeat sender of a worker that has just started."""
    settings = WorkerSettings(model=MODEL, redis_timeout_s=60)
    return HeartbeatSender(WorkerState(settings, worker, Keys("q"), cast("Any", connection)), [])


def reported_up(worker: str) -> float | None:
    """Returns the worker's `up` metric; None if there is none."""
    return REGISTRY.get_sample_value("redbatch_worker_up", {"worker": worker, "model": MODEL})


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a blocked event loop count as dead sooner."""
    monkeypatch.setattr(heartbeat, "TICK_S", TICK_S)
    monkeypatch.setattr(heartbeat, "STUCK_S", STUCK_S)


def test_a_worker_is_not_up_from_its_first_moment_on() -> None:
    """If its engine never becomes ready, or restarts again and again, it reports 0 for alerts, not nothing."""
    assert reported_up("new") is None
    sender = create_sender("new")
    assert reported_up("new") == 0
    sender.set_ready(Ready())
    assert reported_up("new") == 1
    sender.set_loading()
    assert reported_up("new") == 0
    sender.set_ready(Ready())
    sender.set_standby()
    assert reported_up("new") == 0
    sender.set_ready(Ready())
    create_sender("new")  # replaces one that failed
    assert reported_up("new") == 0


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_intervals")
async def test_redis_that_hangs_leaves_a_worker_alive() -> None:
    """However long it hangs: an outage of Redis must restart no GPU worker."""
    connection = HangingConnection()
    sender = create_sender("cut off", connection)
    tasks = [asyncio.create_task(sender.run()), asyncio.create_task(sender.tick())]
    await connection.called.wait()
    ends = time.monotonic() + 3 * STUCK_S
    while time.monotonic() < ends:
        assert sender.is_alive()
        await asyncio.sleep(TICK_S)
    assert sender.missing_parts() == ["redis", "engine"]
    await cancel_and_wait(tasks)


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_intervals")
async def test_an_event_loop_that_is_blocked_is_not_alive() -> None:
    """As the thread of the admin port sees it; it is alive again once the loop runs."""
    sender = create_sender("stuck")
    ticking = asyncio.create_task(sender.tick())
    await asyncio.sleep(TICK_S)
    alive: list[bool] = []
    probe = threading.Timer(2 * STUCK_S, lambda: alive.append(sender.is_alive()))
    probe.start()
    probe.join()  # which blocks the loop
    assert alive == [False]
    await asyncio.sleep(2 * TICK_S)
    assert sender.is_alive()
    await cancel_and_wait([ticking])
