"""Renewals of a lease that come late, which announce its loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpuworker.gpu.lease import GpuLease
from gpuworker.settings import WorkerSettings
from shared import scripts
from shared.errors import RedisUnreachableError
from shared.process.tasks import cancel_and_wait
from shared.scripts import Script

pytestmark = pytest.mark.asyncio

TTL_S, MARGIN_S = 3.0, 0.3
LATE_S = [(2 * TTL_S / 3 - MARGIN_S) / 2, (TTL_S / 3 - MARGIN_S) / 2]
"""What is left of a lease when its first renewal is late, and when the second one is too."""


class Clock:
    """Takes the place of `time` and `asyncio` in a lease: a sleep ends at once, and advances the time to its end."""

    timeout = staticmethod(asyncio.timeout)

    def __init__(self) -> None:
        self.now = 1_000.0
        self._timers: list[tuple[float, asyncio.Handle]] = []

    def monotonic(self) -> float:
        """Returns the time, s."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advances the time."""
        self.advance_to(self.now + seconds)
        await asyncio.sleep(0)

    def get_running_loop(self) -> Clock:
        """Returns the timers."""
        return self

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Calls a function at a later time."""
        handle = asyncio.Handle(callback, (), asyncio.get_running_loop())
        self._timers.append((self.now + seconds, handle))
        return handle

    def advance_to(self, at: float) -> None:
        """Advances the time, and runs the timers that end meanwhile."""
        for due, handle in sorted(self._timers, key=itemgetter(0)):
            if due <= at:
                self.now = max(self.now, due)
                self._timers.remove((due, handle))
                if not handle.cancelled():
                    handle._run()
        self.now = at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of leases."""
    clock = Clock()
    monkeypatch.setattr("gpuworker.gpu.lease.time", clock)
    monkeypatch.setattr("gpuworker.gpu.lease.asyncio", clock)
    return clock


class Redis:
    """A connection to a Redis that grants the only slot; a test decides what a renewal does.

    Attributes:
        all_renewed: set when the renewals have succeeded, and another one, which is not answered, is requested.
    """

    def __init__(self, renew: Callable[[], None], num_renewals: int) -> None:
        self._renew = renew
        self._num_left = num_renewals
        self.all_renewed = asyncio.Event()

    async def run(self, script: Script, *_: object) -> object:
        """Answers a script."""
        if script is not scripts.LEASE_RENEW:
            return [0, 1]
        if self._num_left == 0:
            self.all_renewed.set()
            await asyncio.Event().wait()
        self._renew()
        self._num_left -= 1
        return 1


def num_late() -> float:
    """Returns the number of late renewals of this process."""
    return REGISTRY.get_sample_value("redbatch_gpu_lease_late_renewals_total") or 0.0


async def acquire(renew: Callable[[GpuLease], None], num_renewals: int) -> tuple[GpuLease, Redis]:
    """Acquires a lease, from a Redis that renews it this often."""
    settings = WorkerSettings(gpu_lease="exclusive", gpu_lease_ttl_s=TTL_S, gpu_lease_margin_s=MARGIN_S)
    connection = Redis(lambda: renew(lease), num_renewals)
    lease = GpuLease(settings.lease, "auto", "worker", cast("Any", connection), lambda _: None)
    await lease.acquire()
    return lease, connection


async def keep(renew: Callable[[GpuLease], None], num_renewals: int) -> float:
    """Keeps a lease until it is renewed this often; returns how many of the renewals were late."""
    before = num_late()
    lease, connection = await acquire(renew, num_renewals)
    keeping = asyncio.create_task(lease.keep_until_lost())
    renewed = asyncio.create_task(connection.all_renewed.wait())
    await asyncio.wait([keeping, renewed], return_when=asyncio.FIRST_COMPLETED)
    assert not keeping.done()
    await cancel_and_wait([keeping, renewed])
    return num_late() - before


@pytest.mark.usefixtures("clock")
async def test_renewals_in_time_are_not_late() -> None:
    """A lease is renewed at a third of its lifetime."""
    assert await keep(lambda _: None, 2) == 0


@pytest.mark.parametrize(("left_s", "expected"), [(LATE_S[0] + 0.3, 0), (LATE_S[1] + 0.3, 1), (0.3, 2)])
async def test_each_renewal_that_an_outage_delays_is_late_once(clock: Clock, left_s: float, expected: int) -> None:
    """However often it is tried again; the lease is still held, and the renewals after the outage are in time."""
    is_away = True

    def renew(lease: GpuLease) -> None:
        nonlocal is_away
        is_away = is_away and lease.expires_at - clock.now > left_s
        if is_away:
            raise RedisUnreachableError("Redis is away.")

    assert await keep(renew, 2) == expected


@pytest.mark.parametrize(("left_s", "expected"), [(LATE_S[0] + 0.05, 0), (LATE_S[1] + 0.05, 1), (0.05, 2)])
async def test_a_renewal_that_takes_long_is_late(clock: Clock, left_s: float, expected: int) -> None:
    """Although it succeeds: half of the time that it had is over, and then half of that of the next one."""
    assert await keep(lambda lease: clock.advance_to(lease.expires_at - left_s), 1) == expected


@pytest.mark.parametrize("hangs", [False, True], ids=["away", "silent"])
async def test_an_outage_is_late_twice_before_the_lease_is_lost(clock: Clock, *, hangs: bool) -> None:
    """The second renewal is due at two thirds of the lifetime, and late when half of the rest is over."""
    before = num_late()

    def renew(lease: GpuLease) -> None:
        if hangs:
            clock.advance_to(lease.expires_at)
        raise RedisUnreachableError("Redis is away.")

    lease, _ = await acquire(renew, 1)
    with capture_logs() as logs:
        assert await lease.keep_until_lost() == "it has expired"
    assert num_late() == before + 2
    assert [each["left_s"] for each in logs] == pytest.approx(LATE_S, abs=0.01)
