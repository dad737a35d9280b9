"""When a worker takes over what others left behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuworker.consumer import reclaimer
from gpuworker.consumer.reclaimer import Reclaimer
from shared.consumer import ClaimResult

RENEW_S = 0.25


class Clock:
    """Time that passes while the reclaimer sleeps, up to an end."""

    def __init__(self, end: float) -> None:
        self.now, self._end = 0.0, end

    def monotonic(self) -> float:
        """Returns the time, s."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Passes time. Raises CancelledError at the end."""
        self.now += seconds
        if self.now > self._end:
            raise asyncio.CancelledError


async def reclaim_times(monkeypatch: pytest.MonkeyPatch, room_from: float, end: float) -> list[float]:
    """Returns when a worker reclaimed that has room for entries from some time on."""
    clock, times = Clock(end), []

    async def reclaim(*_: object) -> ClaimResult | None:
        times.append(clock.now)
        return cast("ClaimResult", SimpleNamespace(now_ms=0, entries=(), malformed=(), released=0))

    monkeypatch.setattr(reclaimer, "time", clock)
    monkeypatch.setattr(reclaimer, "asyncio", SimpleNamespace(sleep=clock.sleep))
    monkeypatch.setattr("shared.consumer.reclaim", reclaim)
    renewal = SimpleNamespace(interval_s=RENEW_S, reclaim_idle_ms=3_000)
    in_flight = SimpleNamespace(entries=lambda _shard: [])
    state = SimpleNamespace(settings=SimpleNamespace(renewal=renewal), in_flight=in_flight, revision="", worker="w")
    redis_clock = SimpleNamespace(now_ms=lambda: 0, observe=lambda _now_ms: None)
    shard: Any = SimpleNamespace(worker_state=state, number=0, keys=None, clock=redis_clock, uncommitted_since=None)
    claimer: Any = SimpleNamespace(reclaim_capacity=lambda: 8 if clock.now >= room_from else 0)
    unused: Any = None
    with pytest.raises(asyncio.CancelledError):
        await Reclaimer(shard, unused, claimer, unused, unused).run()
    return times


async def test_it_reclaims_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at its start: other workers have time to renew what they hold after a stall of Redis."""
    assert await reclaim_times(monkeypatch, room_from=0.0, end=3.5) == [1.0, 2.0, 3.0]


async def test_a_turn_without_room_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the model loads there is none; then what a dead worker left has waited long enough."""
    assert await reclaim_times(monkeypatch, room_from=2.3, end=4.0) == [2.5, 3.5]
