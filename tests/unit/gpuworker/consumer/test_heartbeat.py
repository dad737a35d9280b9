"""What a worker says of itself: that it is up, and that it lives."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from gpuworker.consumer import heartbeat
from gpuworker.consumer.worker_state import Context
from gpuworker.consumer.heartbeat import Pacemaker
from gpuworker.settings import WorkerSettings
from shared.process.tasks import end
from shared.keys import Keys

MODEL = "null"
TICK_S, STUCK_S = 0.01, 0.2
"""Here; there they are longer."""


class Hangs:
    """A link to a Redis that takes a question and never answers, whatever time it is given."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def run(self, *_args: object) -> None:
        """Does not answer."""
        self.asked.set()
        await asyncio.Event().wait()


def made(worker: str, link: object = None) -> Pacemaker:
    """Returns the pacemaker of a worker that has just begun."""
    settings = WorkerSettings(model=MODEL, redis_timeout_s=60)
    return Pacemaker(Context(settings, worker, Keys("q"), cast("Any", link)), 5.0, [])


def up(worker: str) -> float | None:
    """Returns what Prometheus is told of a worker; None for nothing."""
    return REGISTRY.get_sample_value("redbatch_worker_up", {"worker": worker, "model": MODEL})


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop is stuck sooner."""
    monkeypatch.setattr(pacemaker, "TICK_S", TICK_S)
    monkeypatch.setattr(pacemaker, "STUCK_S", STUCK_S)


def test_a_worker_is_not_up_from_its_first_moment_on() -> None:
    """One whose engine never becomes ready, or that starts again and again, shows a 0 to alert on, not nothing."""
    assert up("new") is None
    pace = made("new")
    assert up("new") == 0
    pace.ready({})
    assert up("new") == 1
    pace.loading()
    assert up("new") == 0
    pace.ready({})
    pace.stand_by()
    assert up("new") == 0
    pace.ready({})
    made("new")  # in the place of one that failed
    assert up("new") == 0


@pytest.mark.asyncio
@pytest.mark.usefixtures("hasty")
async def test_redis_that_hangs_leaves_a_worker_alive() -> None:
    """However long: no outage of Redis has a GPU started again."""
    link = Hangs()
    pace = made("cut off", link)
    tasks = [asyncio.create_task(pace.run()), asyncio.create_task(pace.tick())]
    await link.asked.wait()
    ends = time.monotonic() + 3 * STUCK_S
    while time.monotonic() < ends:
        assert pace.alive()
        await asyncio.sleep(TICK_S)
    assert pace.missing() == ["redis", "engine"]
    await end(tasks)


@pytest.mark.asyncio
@pytest.mark.usefixtures("hasty")
async def test_an_event_loop_that_is_blocked_is_not_alive() -> None:
    """As the thread of the admin port sees it; and it is again once the loop comes round."""
    pace = made("stuck")
    ticking = asyncio.create_task(pace.tick())
    await asyncio.sleep(TICK_S)
    seen: list[bool] = []
    looking = threading.Timer(2 * STUCK_S, lambda: seen.append(pace.alive()))
    looking.start()
    looking.join()  # which blocks the loop
    assert seen == [False]
    await asyncio.sleep(2 * TICK_S)
    assert pace.alive()
    await end([ticking])
