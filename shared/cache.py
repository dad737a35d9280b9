"""Vectors that were computed before, by a digest of what they are of: shared by all gateways of a queue."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared import scripts
from shared.connection import Argument, RedisConnection
from shared.keys import Keys
from shared.script_rows import CacheRow

_HEAD = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class CacheBound:
    """How many bytes of Redis the cache may take, about, and how long a vector is kept."""

    max_bytes: int
    ttl_ms: int


class CachedVector(NamedTuple):
    """A vector (little-endian float32) that was kept at a time (Redis' clock, ms), and how many tokens it took."""

    at_ms: int
    tokens: int
    data: bytes


async def lookup(
    connection: RedisConnection, keys: Keys, bound: CacheBound, names: Sequence[bytes]
) -> tuple[int, list[CachedVector | None]]:
    """Returns Redis' clock (ms), and what is kept under each name and has not passed its time."""
    now_ms, *found = await connection.run(scripts.CACHE_LOOKUP, keys.cache, [bound.max_bytes, bound.ttl_ms, *names])
    return now_ms, [_parsed(each, now_ms - bound.ttl_ms) for each in found]


async def store(
    connection: RedisConnection, keys: Keys, bound: CacheBound, values: Mapping[bytes, CachedVector]
) -> None:
    """Keeps vectors."""
    args: list[Argument] = [bound.max_bytes, bound.ttl_ms]
    for name, value in values.items():
        args += CacheRow(name, _HEAD.pack(value.at_ms, value.tokens) + value.data)
    await connection.run(scripts.CACHE_STORE, keys.cache, args)


def _parsed(raw: bytes | None, since_ms: int) -> CachedVector | None:
    """What is in Redis is untrusted: what is no vector was not found."""
    if raw is None or len(raw) <= _HEAD.size or (len(raw) - _HEAD.size) % 4:
        return None
    at_ms, tokens = _HEAD.unpack_from(raw)
    return CachedVector(at_ms, tokens, raw[_HEAD.size :]) if at_ms >= since_ms else None
