"""Which shard of a queue a request goes to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

MAX_REMEMBERED_KEYS = 4_096
"""Keys whose order of shards is remembered."""


@lru_cache(MAX_REMEMBERED_KEYS)
def rendezvous_order(key: str | bytes, num_shards: int) -> tuple[int, ...]:
    """Returns all shards in the order of their weights for a key: that of a tenant, a job or a vector.

    All gateways have the same order. If a shard is away, only its own keys go to others, and are spread over these.
    """
    name = key.encode() if isinstance(key, str) else key

    def weight(shard: int) -> bytes:
        return blake2b(name, digest_size=8, key=b"%d" % shard).digest()

    return tuple(sorted(range(num_shards), key=weight, reverse=True))


def less_busy(shards: Sequence[int], tokens: Sequence[int], draw: float) -> int:
    """Returns the shard with fewer tokens in flight of two that are drawn at random, `draw` being from 0 to 1.

    The shard with the fewest of all would get the requests of all gateways at once. A shard that does not answer
    collects tokens, and is soon not chosen any more.
    """
    if len(shards) == 1:
        return shards[0]
    others = len(shards) - 1
    first, second = divmod(int(draw * len(shards) * others), others)
    second += second >= first
    one, other = shards[first], shards[second]
    return one if tokens[one] <= tokens[other] else other
