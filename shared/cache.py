"""Cached vectors, by a digest of model revision, options and input: shared by all gateways of a queue."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared import scripts
from shared.connection import Argument, RedisConnection
from shared.keys import Keys
from shared.messages import Input, Options
from shared.script_arguments import CacheRow

DIGEST_BYTES = 20

_HEAD = struct.Struct("<QII")
"""Of a stored vector: when it was stored, its tokens, and 1 if its input was truncated."""

_FORMAT = 2
"""Part of each key: vectors that older gateways stored have other keys, as these do not say what was truncated."""


@dataclass(frozen=True, slots=True)
class CacheBound:
    """Approximate maximum of the bytes of Redis that the cache uses, and the lifetime of a vector."""

    max_bytes: int
    ttl_ms: int


class CachedVector(NamedTuple):
    """A vector (little-endian float32), and when it was stored (Redis' clock, ms).

    Of its input: the number of tokens, and whether it was cut to the model's maximum length.
    """

    at_ms: int
    tokens: int
    data: bytes
    truncated: bool = False


def cache_key(revision: str, options: Options, value: Input, owner: tuple[str, ...] = ()) -> bytes:
    """Returns the key of an input's vector in the cache, which is that of its `owner` alone if there is one.

    Raises UnicodeEncodeError: the input holds a lone surrogate.
    """
    kind, data = (b"ids", value) if isinstance(value, bytes) else (b"text", value.encode())
    head = repr((_FORMAT, revision, *options, *owner)).encode()
    return hashlib.blake2b(b"\0".join((head, kind, data)), digest_size=DIGEST_BYTES).digest()


async def lookup(
    connection: RedisConnection, keys: Keys, bound: CacheBound, names: Sequence[bytes]
) -> tuple[int, list[CachedVector | None]]:
    """Returns Redis' clock (ms), and the vector under each name, None where there is none or it has expired."""
    now_ms, *found = await connection.run(scripts.CACHE_LOOKUP, keys.cache, [bound.max_bytes, bound.ttl_ms, *names])
    return now_ms, [_parse_vector(each, now_ms - bound.ttl_ms) for each in found]


async def store(
    connection: RedisConnection, keys: Keys, bound: CacheBound, values: Mapping[bytes, CachedVector]
) -> None:
    """Stores vectors by name."""
    args: list[Argument] = [bound.max_bytes, bound.ttl_ms]
    for name, value in values.items():
        args += CacheRow(name, _HEAD.pack(value.at_ms, value.tokens, value.truncated) + value.data)
    await connection.run(scripts.CACHE_STORE, keys.cache, args)


def _parse_vector(raw: bytes | None, since_ms: int) -> CachedVector | None:
    """Parses a vector from Redis, which is untrusted: anything else counts as not found."""
    if raw is None or len(raw) <= _HEAD.size or (len(raw) - _HEAD.size) % 4:
        return None
    at_ms, tokens, truncated = _HEAD.unpack_from(raw)
    return CachedVector(at_ms, tokens, raw[_HEAD.size :], bool(truncated)) if at_ms >= since_ms else None
