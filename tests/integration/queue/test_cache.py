"""The cache's scripts: what was kept is found, within its time and its bytes."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

import pytest
import redis.asyncio

from shared.cache import CacheBound, Kept, keep, lookup
from shared.keys import Keys
from shared.connection import Link, Queue

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything]

BOUND = CacheBound(10_000_000, 60_000)
SIZE = 400


def value(number: int, at_ms: int | None = None, size: int = SIZE) -> Kept:
    """Returns a vector that no other number has."""
    now_ms = int(time.time() * 1000) if at_ms is None else at_ms
    return Kept(now_ms, number, struct.pack("<f", number) * (size // 4))


def values(*numbers: int, size: int = SIZE) -> dict[bytes, Kept]:
    """Returns vectors by name."""
    return {b"name-%d" % number: value(number, size=size) for number in numbers}


async def found(link: Link, keys: Keys, bound: CacheBound, names: Mapping[bytes, Kept]) -> list[int | None]:
    """Returns the numbers of what is there under these names."""
    _, kept = await lookup(link, keys, bound, list(names))
    return [None if each is None else each.tokens for each in kept]


async def test_what_is_kept_is_found_as_it_was(queue: Queue) -> None:
    """In the order asked for, and nothing for a name that is not there."""
    link, some = queue.link("cache"), values(1, 2, 3)
    await keep(link, queue.keys, BOUND, some)
    now_ms, kept = await lookup(link, queue.keys, BOUND, [b"name-3", b"name-9", b"name-1"])
    assert kept == [some[b"name-3"], None, some[b"name-1"]]
    assert abs(now_ms - time.time() * 1000) < 60_000


async def test_a_vector_passes_its_time(queue: Queue, raw: redis.asyncio.Redis) -> None:
    """However often it was asked for; and with all, the keys."""
    link = queue.link("cache")
    now_ms = int(time.time() * 1000)
    some = {b"young": value(1), b"old": value(2, now_ms - BOUND.ttl_ms - 1_000)}
    await keep(link, queue.keys, BOUND, some)
    assert await found(link, queue.keys, BOUND, some) == [1, None]
    times = [await raw.pttl(name) for name in queue.keys.cache]
    assert 0 < times[1] <= 2 * BOUND.ttl_ms
    assert 0 < times[0] <= 4 * BOUND.ttl_ms
    assert times[2] == -2


@pytest.mark.parametrize("size", [400, 1_536, 4_096])
async def test_it_takes_no_more_bytes_than_it_may(queue: Queue, raw: redis.asyncio.Redis, size: int) -> None:
    """As Redis itself counts them; what is asked for again and again stays."""
    link, bound = queue.link("cache"), CacheBound(1_000 * size, 60_000)
    favourite = values(0, size=size)
    await keep(link, queue.keys, bound, favourite)
    for start in range(1, 5_001, 50):
        await keep(link, queue.keys, bound, values(*range(start, start + 50), size=size))
        assert await found(link, queue.keys, bound, favourite) == [0]
        sizes: list[Any] = [await raw.memory_usage(name, samples=0) or 0 for name in queue.keys.cache]
        assert sum(sizes) <= bound.max_bytes
    assert await found(link, queue.keys, bound, values(5_000)) == [5_000]
    assert await found(link, queue.keys, bound, values(1)) == [None]
    assert sum(sizes) > bound.max_bytes / 4


async def test_a_generation_that_passed_its_time_begins_anew(queue: Queue, raw: redis.asyncio.Redis) -> None:
    """Its bytes are not counted twice."""
    link = queue.link("cache")
    await keep(link, queue.keys, BOUND, values(1, 2, 3))
    await raw.delete(queue.keys.cache[1])
    await keep(link, queue.keys, BOUND, values(4))
    counted = int(await raw.hget(queue.keys.cache[0], "bytes") or 0)
    assert SIZE < counted < 2 * SIZE
    assert await raw.pttl(queue.keys.cache[1]) > 0


async def test_what_is_no_vector_was_not_found(queue: Queue, raw: redis.asyncio.Redis) -> None:
    """Anybody may have written there."""
    names: dict[Any, Any] = {b"short": b"x", b"odd": bytes(15), b"empty": b"", b"head": bytes(12)}
    await raw.hset(queue.keys.cache[1], mapping=names)
    _, kept = await lookup(queue.link("cache"), queue.keys, BOUND, list(names))
    assert kept == [None] * len(names)


async def test_keeping_again_counts_once(queue: Queue, raw: redis.asyncio.Redis) -> None:
    """Two gateways may compute the same at the same time."""
    link = queue.link("cache")
    await keep(link, queue.keys, BOUND, values(1))
    before = await raw.hget(queue.keys.cache[0], "bytes")
    await keep(link, queue.keys, BOUND, values(1))
    assert await raw.hget(queue.keys.cache[0], "bytes") == before
