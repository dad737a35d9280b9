"""Which shard of a queue a request goes to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

MAX_HOLDERS = 4_096
"""Holders whose shards are remembered."""


@lru_cache(MAX_HOLDERS)
def shards_of(holder: str | bytes, num_shards: int) -> tuple[int, ...]:
    """Returns all shards in the order in which a holder prefers them (rendezvous hashing).

    All gateways have the same order. If a shard is away, only its own holders go to another one, and are spread.
    """
    name = holder.encode() if isinstance(holder, str) else holder

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
