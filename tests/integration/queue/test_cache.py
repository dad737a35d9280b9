"""The cache's scripts: stored vectors are found, within their lifetime and the cache's bytes."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

import pytest
import redis.asyncio

from shared.cache import CacheBound, CachedVector, lookup, store
from shared.connection import RedisConnection
from shared.keys import Keys
from shared.queue_connections import QueueConnections

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything]

BOUND = CacheBound(10_000_000, 60_000)
SIZE = 400


def value(number: int, at_ms: int | None = None, size: int = SIZE) -> CachedVector:
    """Returns a vector that differs from that of any other number."""
    now_ms = int(time.time() * 1000) if at_ms is None else at_ms
    return CachedVector(now_ms, number, struct.pack("<f", number) * (size // 4))


def values(*numbers: int, size: int = SIZE) -> dict[bytes, CachedVector]:
    """Returns vectors by name."""
    return {b"name-%d" % number: value(number, size=size)._replace(truncated=number % 2 == 0) for number in numbers}


async def find_numbers(
    connection: RedisConnection, keys: Keys, bound: CacheBound, names: Mapping[bytes, CachedVector]
) -> list[int | None]:
    """Returns the numbers of the vectors under these names, None where there is none."""
    _, vectors = await lookup(connection, keys, bound, list(names))
    return [None if each is None else each.tokens for each in vectors]


async def test_a_stored_vector_is_found_unchanged(queue: QueueConnections) -> None:
    """Vectors come back unchanged in the order of the names, None for an unknown name."""
    connection, some = queue.connection("cache"), values(1, 2, 3)
    await store(connection, queue.keys, BOUND, some)
    now_ms, vectors = await lookup(connection, queue.keys, BOUND, [b"name-3", b"name-9", b"name-2"])
    assert vectors == [some[b"name-3"], None, some[b"name-2"]]
    assert abs(now_ms - time.time() * 1000) < 60_000


async def test_a_vector_expires(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """A vector expires, however often it was looked up; the keys expire with the vectors."""
    connection = queue.connection("cache")
    now_ms = int(time.time() * 1000)
    some = {b"young": value(1), b"old": value(2, now_ms - BOUND.ttl_ms - 1_000)}
    await store(connection, queue.keys, BOUND, some)
    assert await find_numbers(connection, queue.keys, BOUND, some) == [1, None]
    times = [await raw.pttl(name) for name in queue.keys.cache]
    assert 0 < times[1] <= 2 * BOUND.ttl_ms
    assert 0 < times[0] <= 4 * BOUND.ttl_ms
    assert times[2] == -2


@pytest.mark.parametrize("size", [400, 1_536, 4_096])
async def test_the_cache_stays_within_its_bytes(queue: QueueConnections, raw: redis.asyncio.Redis, size: int) -> None:
    """The cache stays within its bytes, as Redis counts them; a vector that is looked up again and again stays."""
    connection, bound = queue.connection("cache"), CacheBound(1_000 * size, 60_000)
    frequent = values(0, size=size)
    await store(connection, queue.keys, bound, frequent)
    for start in range(1, 5_001, 50):
        await store(connection, queue.keys, bound, values(*range(start, start + 50), size=size))
        assert await find_numbers(connection, queue.keys, bound, frequent) == [0]
        sizes: list[Any] = [await raw.memory_usage(name, samples=0) or 0 for name in queue.keys.cache]
        assert sum(sizes) <= bound.max_bytes
    assert await find_numbers(connection, queue.keys, bound, values(5_000)) == [5_000]
    assert await find_numbers(connection, queue.keys, bound, values(1)) == [None]
    assert sum(sizes) > bound.max_bytes / 4


async def test_an_expired_generation_begins_again(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """A generation that expired begins again, and its bytes are not counted twice."""
    connection = queue.connection("cache")
    await store(connection, queue.keys, BOUND, values(1, 2, 3))
    await raw.delete(queue.keys.cache[1])
    await store(connection, queue.keys, BOUND, values(4))
    counted = int(await raw.hget(queue.keys.cache[0], "bytes") or 0)
    assert SIZE < counted < 2 * SIZE
    assert await raw.pttl(queue.keys.cache[1]) > 0


async def test_an_invalid_vector_is_not_found(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """Invalid values count as not found: any client may have written there."""
    names: dict[Any, Any] = {b"short": b"x", b"odd": bytes(15), b"empty": b"", b"head": bytes(12)}
    await raw.hset(queue.keys.cache[1], mapping=names)
    _, vectors = await lookup(queue.connection("cache"), queue.keys, BOUND, list(names))
    assert vectors == [None] * len(names)


async def test_storing_again_counts_once(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """Two gateways may store the same vector at the same time: its bytes count once."""
    connection = queue.connection("cache")
    await store(connection, queue.keys, BOUND, values(1))
    before = await raw.hget(queue.keys.cache[0], "bytes")
    await store(connection, queue.keys, BOUND, values(1))
    assert await raw.hget(queue.keys.cache[0], "bytes") == before
