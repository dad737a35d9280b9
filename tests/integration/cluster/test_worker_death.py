"""The death of one of two workers under full load, with the settings that users have."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.cluster.client_pool import ClientPool
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

DEADLINE_MS, RECLAIM_IDLE_MS = 20_000, 3_000
"""Twice the default, for a busy machine, and the default, which the other tests of deaths shorten or extend."""

SLOW = "simulated:base_ms=25,item_ms=25"
"""A batch of 32 takes 0.8 s: a suspect behind each batch of others would take 26 s for those of one dead worker."""


@pytest.mark.timeout(120)
async def test_the_requests_of_a_dead_worker_are_answered_in_time(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher
) -> None:
    """A full batch dies with it; the other worker takes it over, while new requests keep its own batches full."""
    dispatcher = await start_dispatcher()
    killed, _ = await asyncio.gather(
        *(cluster.start_worker(SLOW, reclaim_idle_ms=RECLAIM_IDLE_MS, runners=1) for _ in range(2))
    )
    await wait_until(lambda: len(dispatcher.monitor.workers()) == 2, "the gateway sees both workers")
    pool = ClientPool([dispatcher], 600, max_in_flight=64, timeout_ms=DEADLINE_MS)
    running = asyncio.create_task(pool.run())
    await wait_until(lambda: pool.outcomes.total() >= 150, "both workers run full batches", timeout_s=30)
    killed.kill()
    await running
    assert pool.outcomes == {"ok": 600}
