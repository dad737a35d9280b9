"""Two gateways and two workers as real processes, and 5,000 clients at once."""

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
REPLY_CONNECTIONS = 8
CONNECTIONS = 24


class Connections:
    """The most connections that each gateway had while somebody looked."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self.all: Counter[str] = Counter()
        self.reply: Counter[str] = Counter()
        self.looks = 0
        self.looking = True

    async def look(self) -> None:
        """Looks again and again while somebody is `looking`."""
        while self.looking:
            names = [each["name"].split(":") for each in await self._client.client_list()]
            gateways = [name for name in names if name[0] == "gateway"]
            self.all |= Counter(name[1] for name in gateways)
            self.reply |= Counter(name[1] for name in gateways if name[2] == "reply")
            self.looks += 1
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
async def test_5000_clients_at_once_each_get_their_own_vector(
    cluster: GatewayCluster, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """None is lost, each text runs once, and Redis sees few connections; past the reply TTL it is empty."""
    raise_open_files(16_384)
    one, two = await asyncio.gather(*(cluster.start_gateway() for _ in range(2)))
    workers = await asyncio.gather(*(cluster.start_worker(reply_ttl_s=1) for _ in range(2)))
    await wait_until(lambda: one.missing() == two.missing() == [], "both gateways see the workers")
    callers = await connect([one.port, two.port], [f"text {i}" for i in range(CLIENTS)])
    connections = Connections(raw)
    looking = asyncio.create_task(connections.look())
    began = time.monotonic()
    outcomes = Counter(await asyncio.gather(*(caller.call() for caller in callers)))
    took = time.monotonic() - began
    connections.looking = False
    await looking
    run = [num_inputs_run(worker) for worker in workers]
    sys.stdout.write(f"{took:.2f} s, run {run}, connections {connections.all}, for replies {connections.reply}\n")
    assert outcomes == {"ok": CLIENTS}
    assert connections.looks
    assert len(connections.all) == 2
    assert max(connections.all.values()) <= CONNECTIONS
    assert 1 <= max(connections.reply.values()) <= REPLY_CONNECTIONS
    assert sum(run) == CLIENTS
    assert min(run) > 0, "both workers take part"

    async def no_replies() -> bool:
        left = [name async for name in raw.scan_iter(match=f"{keys.prefix}reply:*", count=1_000)]
        return not left and not await raw.xlen(keys.lanes[0])

    await wait_until(no_replies, "no reply is left")
