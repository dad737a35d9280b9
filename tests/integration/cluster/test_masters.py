"""A gateway whose connections lead to two masters, as Redis does not tell it which it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio

from api.dialects.request import InferenceRequest
from api.dispatch.dispatcher import Dispatcher
from api.settings import GatewaySettings
from shared.keys import Keys
from tests.servers import Server
from tests.several_redis import as_blind, blind_user
from tests.switch import Switch

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

REQUESTS = 40
SPLIT_S = 4.0
STATS = ("+info|replication", "+info|memory", "+info|persistence")
"""What a gateway cannot do without."""


@pytest_asyncio.fixture
async def two_masters() -> AsyncIterator[list[Server]]:
    """Two unrelated Redis with a user who may not use INFO beyond statistics."""
    servers = [Server(), Server()]
    for server in servers:
        await asyncio.to_thread(server.start)
    async with blind_user(*servers, allowed=STATS):
        yield servers
    for server in servers:
        await asyncio.to_thread(server.stop)


async def test_queues_do_not_grow_while_connections_lead_to_two_masters(
    two_masters: list[Server], queue_name: str
) -> None:
    """Each of them misses what the other has. No queue gets an entry twice, but for a submit whose reply is lost."""
    keys = Keys(queue_name)
    async with Switch(two_masters[0]) as switch:
        url = as_blind(switch.url)
        dispatcher = Dispatcher(GatewaySettings(redis_url=url, queue=queue_name), queue_name)
        await dispatcher.start()
        pending = [
            asyncio.create_task(
                dispatcher._answer_by_itself(InferenceRequest((f"{i}",), 60_000), "", _deadline(), None)
            )
            for i in range(REQUESTS)
        ]
        await asyncio.sleep(0.2)
        await switch.route(*two_masters)
        longest = [0, 0]
        for _ in range(int(SPLIT_S / 0.05)):
            await switch.cut(1)
            await asyncio.sleep(0.05)
            for index, server in enumerate(two_masters):
                async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw:
                    longest[index] = max(longest[index], int(await raw.xlen(keys.lanes[0])))
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await dispatcher.stop()
    assert min(longest) > 0, "both have had entries"
    assert max(longest) <= 2 * REQUESTS


def _deadline() -> float:
    return asyncio.get_running_loop().time() + 60
