"""What processes have counted, as Redis has it: hours, bounds, and calls that are repeated."""

from __future__ import annotations

import pytest
import redis.asyncio

from shared import usage
from shared.connection import RedisConnection
from shared.keys import USAGE_HOURS
from shared.queue_connections import QueueConnections
from shared.usage import HOUR_MS, KEPT_HOURS, UsageBatch
from shared.usage_counts import MAX_ROWS, OTHER, Usage, UsageKey

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything]

FULL = Usage(1, 2, 3, 4, 5, 6, 7.125)


async def present_hour(client: redis.asyncio.Redis) -> int:
    """Returns the hour by Redis' clock."""
    seconds, _ = await client.time()
    return int(seconds) // 3_600


async def read(connection: RedisConnection, hours: range) -> dict[UsageKey, Usage]:
    """Returns the rows of hours."""
    found: dict[UsageKey, Usage] = {}
    async for _, rows in usage.read_hours([connection], hours):
        found |= rows
    return found


async def test_rows_of_gateways_and_workers_add_up(
    gateway_queue: QueueConnections, worker_queue: QueueConnections, raw: redis.asyncio.Redis, queue_name: str
) -> None:
    """A call is added once, however often it is repeated; a tenant may have no name. An hour is kept for 40 days."""
    gateway, worker = gateway_queue.connection("usage"), worker_queue.connection("usage")
    named, anonymous = UsageKey("web", queue_name, "embed"), UsageKey("", queue_name, "")
    rows = {named: FULL, anonymous: Usage(refusals=1)}
    hour = await present_hour(raw)
    for number, is_new in ((1, True), (1, False), (2, True), (1, False)):
        assert await usage.add(gateway, f"g-{queue_name}", UsageBatch(number, 0, rows)) == is_new
    assert await usage.add(worker, f"w-{queue_name}", UsageBatch(1, 0, {named: FULL}))
    found = await read(gateway, range(hour, hour + 2))
    assert found[named] == Usage(3, 6, 9, 12, 15, 18, 21.375)
    assert found[anonymous] == Usage(refusals=2)
    ttl_ms = await raw.pttl(f"{USAGE_HOURS}{await present_hour(raw)}")
    assert KEPT_HOURS * HOUR_MS - 60_000 < ttl_ms <= KEPT_HOURS * HOUR_MS


async def test_the_hour_is_that_of_the_count_not_of_the_call(
    gateway_queue: QueueConnections, raw: redis.asyncio.Redis, queue_name: str
) -> None:
    """A process that could not reach Redis for hours adds what it counted to these."""
    connection, key = gateway_queue.connection("usage"), UsageKey("web", queue_name, "embed")
    for number, hours in ((1, 30), (2, 0)):
        batch = UsageBatch(number, hours * HOUR_MS, {key: Usage(requests=1 + hours)})
        assert await usage.add(connection, queue_name, batch)
    hour = await present_hour(raw)
    assert (await read(connection, range(hour - 31, hour - 28)))[key] == Usage(requests=31)
    assert (await read(connection, range(hour - 1, hour + 1)))[key] == Usage(requests=1)


async def test_an_hour_has_a_bounded_number_of_rows(
    gateway_queue: QueueConnections, raw: redis.asyncio.Redis, queue_name: str
) -> None:
    """Further tenants are counted as one, so that sums stay right; those with a row go on."""
    connection, hours_ago = gateway_queue.connection("usage"), 500
    number = 0
    for first in (0, MAX_ROWS // 2, MAX_ROWS):
        number += 1
        keys = [UsageKey(f"t{first + i}", queue_name, "embed") for i in range(MAX_ROWS // 2)]
        rows = {key: Usage(requests=1) for key in keys}
        assert await usage.add(connection, queue_name, UsageBatch(number, hours_ago * HOUR_MS, rows))
    again = {UsageKey("t0", queue_name, "embed"): Usage(requests=1)}
    assert await usage.add(connection, queue_name, UsageBatch(number + 1, hours_ago * HOUR_MS, again))
    hour = await present_hour(raw) - hours_ago
    found = await read(connection, range(hour - 1, hour + 1))
    assert len(found) == MAX_ROWS + 1
    assert found[UsageKey("t0", queue_name, "embed")].requests == 2
    assert found[UsageKey(OTHER, queue_name, "embed")].requests == MAX_ROWS // 2
    assert sum(each.requests for each in found.values()) == 3 * MAX_ROWS // 2 + 1
    await raw.delete(f"{USAGE_HOURS}{hour}", f"{USAGE_HOURS}{hour - 1}")


async def test_rows_that_are_none_are_left_out(gateway_queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """Anything may be in Redis; the next add goes on from what it can read."""
    hour = 1
    key = f"{USAGE_HOURS}{hour}"
    await raw.hset(
        key, mapping={"web minilm embed": "1 2 3 4 5 6 7125", "x": "1", "a b c": "x", "a b d": "1 2 3 4 5 6 -7"}
    )
    assert await read(gateway_queue.connection("usage"), range(hour + 1)) == {UsageKey("web", "minilm", "embed"): FULL}
    await raw.delete(key)
