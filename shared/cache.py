"""Vectors that were computed before, by a digest of what they are of: shared by all gateways of a queue."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared import scripts
from shared.keys import Keys
from shared.connection import Argument, Link

_HEAD = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class CacheBound:
    """How many bytes of Redis the cache may take, about, and how long a vector is kept."""

    max_bytes: int
    ttl_ms: int


class Kept(NamedTuple):
    """A vector (little-endian float32) that was kept at a time (Redis' clock, ms), and how many tokens it took."""

    at_ms: int
    tokens: int
    data: bytes


async def lookup(link: Link, keys: Keys, bound: CacheBound, names: Sequence[bytes]) -> tuple[int, list[Kept | None]]:
    """Returns Redis' clock (ms), and what is kept under each name and has not passed its time."""
    now_ms, *found = await link.run(scripts.CACHED, keys.cache, [bound.max_bytes, bound.ttl_ms, *names])
    return now_ms, [_parsed(each, now_ms - bound.ttl_ms) for each in found]


async def keep(link: Link, keys: Keys, bound: CacheBound, values: Mapping[bytes, Kept]) -> None:
    """Keeps vectors."""
    args: list[Argument] = [bound.max_bytes, bound.ttl_ms]
    for name, value in values.items():
        args += (name, _HEAD.pack(value.at_ms, value.tokens) + value.data)
    await link.run(scripts.CACHE_PUT, keys.cache, args)


def _parsed(raw: bytes | None, since_ms: int) -> Kept | None:
    """What is in Redis is untrusted: what is no vector was not found."""
    if raw is None or len(raw) <= _HEAD.size or (len(raw) - _HEAD.size) % 4:
        return None
    at_ms, tokens = _HEAD.unpack_from(raw)
    return Kept(at_ms, tokens, raw[_HEAD.size :]) if at_ms >= since_ms else None
