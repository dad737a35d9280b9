"""A short entry behind long ones, in a real worker."""

from __future__ import annotations

import pytest

from tests.integration.worker.worker_cluster import WorkerCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

LONG_ENTRIES, LONG_INPUTS = 16, 32


async def test_a_short_entry_does_not_wait_for_the_long_ones_before_it(cluster: WorkerCluster) -> None:
    """It is answered while most of 16 entries wait, each of which fills a batch of 0.2 s, although one is prepared."""
    await cluster.start_worker("simulated:base_ms=10,item_ms=6", max_batch_size=LONG_INPUTS)
    texts = [[f"{number} {i}" for i in range(LONG_INPUTS)] for number in range(LONG_ENTRIES)]
    longs = await cluster.submit_many(texts)
    await wait_until(cluster.has_entry_in_progress, "a long entry is running")
    short = await cluster.submit("short")
    await cluster.check_replies([short])
    left = len(await cluster.pending_entries())
    assert left >= LONG_ENTRIES // 2
    await cluster.check_replies(longs)
