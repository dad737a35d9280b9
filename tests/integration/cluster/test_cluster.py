"""Two gateways and two workers as real processes, and 5,000 concurrent clients."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

import pytest
import redis.asyncio

from shared.keys import Keys
from tests.integration.cluster.client_pool import num_inputs_run
from tests.integration.cluster.connections import connect, raise_open_files
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

CLIENTS = 5_000
MAX_REPLY_CONNECTIONS = 8
MAX_CONNECTIONS = 24


class ConnectionPeaks:
    """The maximum numbers of connections of each gateway while they are polled.

    Attributes:
        all: the maximum number of connections, by gateway.
        reply: the maximum number of connections for replies, by gateway.
        polls: number of polls.
        polling: `poll` ends when it is false.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self.all: Counter[str] = Counter()
        self.reply: Counter[str] = Counter()
        self.polls = 0
        self.polling = True

    async def poll(self) -> None:
        """Polls the connections while `polling` is true."""
        while self.polling:
            names = [each["name"].split(":") for each in await self._client.client_list()]
            gateways = [name for name in names if name[0] == "gateway"]
            self.all |= Counter(name[1] for name in gateways)
            self.reply |= Counter(name[1] for name in gateways if name[2] == "reply")
            self.polls += 1
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
async def test_5000_concurrent_clients_each_get_their_own_vector(
    cluster: GatewayCluster, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """No request is lost, each text runs once, gateways open few connections, and no reply remains after its TTL."""
    raise_open_files(16_384)
    one, two = await asyncio.gather(*(cluster.start_gateway() for _ in range(2)))
    # A worker that stalls must not lose its entries to the other: both would run them.
    workers = await asyncio.gather(*(cluster.start_worker(reply_ttl_s=1, reclaim_idle_ms=60_000) for _ in range(2)))
    await wait_until(lambda: one.missing() == two.missing() == [], "both gateways see the workers")
    callers = await connect([one.port, two.port], [f"text {i}" for i in range(CLIENTS)])
    peaks = ConnectionPeaks(raw)
    polling = asyncio.create_task(peaks.poll())
    start = time.monotonic()
    outcomes = Counter(await asyncio.gather(*(caller.call() for caller in callers)))
    took = time.monotonic() - start
    peaks.polling = False
    await polling
    inputs = [num_inputs_run(worker) for worker in workers]
    sys.stdout.write(f"{took:.2f} s, inputs {inputs}, connections {peaks.all}, for replies {peaks.reply}\n")
    assert outcomes == {"ok": CLIENTS}
    assert peaks.polls
    assert len(peaks.all) == 2
    assert max(peaks.all.values()) <= MAX_CONNECTIONS
    assert 1 <= max(peaks.reply.values()) <= MAX_REPLY_CONNECTIONS
    assert sum(inputs) == CLIENTS
    assert min(inputs) > 0, "a worker ran nothing"

    async def no_replies() -> bool:
        replies = [name async for name in raw.scan_iter(match=f"{keys.prefix}reply:*", count=1_000)]
        return not replies and not await raw.xlen(keys.lanes[0])

    await wait_until(no_replies, "no reply is left")
