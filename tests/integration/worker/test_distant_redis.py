"""A Redis that is a few milliseconds away."""

from __future__ import annotations

import pytest

from tests.integration.worker.worker_cluster import House
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

DELAY_S = 0.003
ENTRIES = 200
MAX_READS = 50


async def test_a_backlog_is_claimed_many_at_a_time(house: House) -> None:
    """A worker that had nothing to do takes what lies there in large claims, however long each read takes."""
    async with FaultProxy(house.url) as proxy:
        proxy.delay_s = lambda: DELAY_S
        house.url = proxy.url
        worker = await house.worker()
        await wait_until(house.blocked, "it waits for an entry")
        await house.check(await house.ask_many([["the one that it waited for"]]))
        before = await _reads(house)
        await house.check(await house.ask_many([[f"{i}"] for i in range(ENTRIES)]))
        assert await _reads(house) - before <= MAX_READS
        await worker.stop()


async def _reads(house: House) -> int:
    statistics = await house.raw.info("commandstats")
    return int(statistics["cmdstat_xreadgroup"]["calls"])
