"""A worker whose Redis is a few milliseconds away."""

from __future__ import annotations

import pytest

from tests.integration.worker.worker_cluster import WorkerCluster
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

DELAY_S = 0.003
ENTRIES = 200
MAX_READS = 50


async def test_a_backlog_is_claimed_in_few_reads(cluster: WorkerCluster) -> None:
    """An idle worker claims a backlog of 200 entries in at most 50 reads, although each read takes long."""
    async with FaultProxy(cluster.url) as proxy:
        proxy.delay_s = lambda: DELAY_S
        cluster.url = proxy.url
        worker = await cluster.start_worker()
        await wait_until(cluster.has_blocked_read, "it waits for an entry")
        await cluster.check_replies(await cluster.submit_many([["first"]]))
        before = await _reads(cluster)
        await cluster.check_replies(await cluster.submit_many([[f"{i}"] for i in range(ENTRIES)]))
        assert await _reads(cluster) - before <= MAX_READS
        await worker.stop()


async def _reads(cluster: WorkerCluster) -> int:
    statistics = await cluster.raw.info("commandstats")
    return int(statistics["cmdstat_xreadgroup"]["calls"])
