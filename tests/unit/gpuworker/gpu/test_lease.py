"""Renewals of a lease that come late, which announce its loss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from gpuworker.gpu.lease import GpuLease
from gpuworker.settings import WorkerSettings
from shared import scripts
from shared.errors import RedisUnreachableError
from shared.process.tasks import cancel_and_wait
from shared.scripts import Script
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

TTL_S, MARGIN_S = 3.0, 0.3
LATE_S = (2 * TTL_S / 3 - MARGIN_S) / 2


class Redis:
    """A connection to a Redis that grants the only slot; a test decides what a renewal does.

    Attributes:
        num_renewals: how many have succeeded.
    """

    def __init__(self, renew: Callable[[], Awaitable[None]]) -> None:
        self._renew = renew
        self.num_renewals = 0

    async def run(self, script: Script, *_: object) -> object:
        """Answers a script."""
        if script is not scripts.LEASE_RENEW:
            return [0, 1]
        await self._renew()
        self.num_renewals += 1
        return 1


def num_late() -> float:
    """Returns the number of late renewals of this process."""
    return REGISTRY.get_sample_value("redbatch_gpu_lease_late_renewals_total") or 0.0


async def keep(renew: Callable[[GpuLease], Awaitable[None]], num_renewals: int) -> float:
    """Keeps a lease until it is renewed this often; returns how many of the renewals were late."""
    settings = WorkerSettings(gpu_lease="exclusive", gpu_lease_ttl_s=TTL_S, gpu_lease_margin_s=MARGIN_S)
    connection = Redis(lambda: renew(lease))
    lease = GpuLease(settings.lease, "auto", "worker", cast("Any", connection), lambda _: None)
    before = num_late()
    await lease.acquire()
    keeping = asyncio.create_task(lease.keep_until_lost())
    await wait_until(lambda: keeping.done() or connection.num_renewals == num_renewals, "renewed", timeout_s=10)
    await asyncio.sleep(0.01)  # until the renewal is recorded
    assert not keeping.done()
    await cancel_and_wait([keeping])
    return num_late() - before


async def test_renewals_in_time_are_not_late() -> None:
    """A lease is renewed at a third of its lifetime."""

    async def renew(_: GpuLease) -> None:
        pass

    assert await keep(renew, 2) == 0


async def test_a_renewal_that_fails_for_long_is_late_once() -> None:
    """It is counted while the lease is still held, however often it is tried again; the next one is in time."""
    before = num_late()

    async def renew(_: GpuLease) -> None:
        if num_late() < before + 1:
            raise RedisUnreachableError("Redis is away.")

    assert await keep(renew, 2) == 1


async def test_a_renewal_that_takes_long_is_late() -> None:
    """Although it succeeds: half of the time that it had is over."""

    async def renew(lease: GpuLease) -> None:
        await asyncio.sleep(lease.expires_at - LATE_S + 0.05 - time.monotonic())

    assert await keep(renew, 1) == 1
