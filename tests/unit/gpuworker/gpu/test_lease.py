"""Renewals of a lease that come late, which announce its loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from gpuworker.gpu.lease import GpuLease
from gpuworker.settings import WorkerSettings
from shared import scripts
from shared.errors import RedisUnreachableError
from shared.process.tasks import cancel_and_wait
from shared.scripts import Script

pytestmark = pytest.mark.asyncio

TTL_S, MARGIN_S = 3.0, 0.3
LATE_S = (2 * TTL_S / 3 - MARGIN_S) / 2


class Clock:
    """Takes the place of `time` and `asyncio` in a lease: a sleep ends at once, and advances the time."""

    timeout = staticmethod(asyncio.timeout)

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """Returns the time, s."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advances the time."""
        self.now += seconds
        await asyncio.sleep(0)


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


async def keep(renew: Callable[[GpuLease], None], num_renewals: int) -> float:
    """Keeps a lease until it is renewed this often; returns how many of the renewals were late."""
    settings = WorkerSettings(gpu_lease="exclusive", gpu_lease_ttl_s=TTL_S, gpu_lease_margin_s=MARGIN_S)
    connection = Redis(lambda: renew(lease), num_renewals)
    lease = GpuLease(settings.lease, "auto", "worker", cast("Any", connection), lambda _: None)
    before = num_late()
    await lease.acquire()
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


@pytest.mark.usefixtures("clock")
async def test_a_renewal_that_fails_for_long_is_late_once() -> None:
    """It is counted while the lease is still held, however often it is tried again; the next one is in time."""
    before = num_late()

    def renew(_: GpuLease) -> None:
        if num_late() < before + 1:
            raise RedisUnreachableError("Redis is away.")

    assert await keep(renew, 2) == 1


async def test_a_renewal_that_takes_long_is_late(clock: Clock) -> None:
    """Although it succeeds: half of the time that it had is over."""

    def renew(lease: GpuLease) -> None:
        clock.now = lease.expires_at - LATE_S + 0.05

    assert await keep(renew, 1) == 1
