"""The cached vectors of a queue of several shards: each vector is on the shard that its key prefers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from api.dispatch.shard_choice import rendezvous_order
from api.dispatch.vector_cache import CacheResults, VectorCache


class ShardedVectorCache:
    """Finds and stores vectors on several shards. What a dead shard has is computed again, and stored nowhere.

    Args:
        caches: of each shard, by its number.
        is_down: whether the Redis of a shard does not answer.
    """

    def __init__(self, caches: Sequence[VectorCache], is_down: Callable[[int], bool]) -> None:
        self._caches = caches
        self._is_down = is_down

    async def run(self) -> None:
        """Looks up and stores until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._caches:
                tasks.create_task(each.run())

    async def find(self, cache_keys: Sequence[bytes]) -> CacheResults:
        """Returns the vector under each key, or None."""
        results: CacheResults = [None] * len(cache_keys)
        indices: defaultdict[int, list[int]] = defaultdict(list)
        for index, key in enumerate(cache_keys):
            indices[self._shard_of(key)].append(index)
        shards = [shard for shard in indices if not self._is_down(shard)]
        lookups = [self._caches[shard].find([cache_keys[index] for index in indices[shard]]) for shard in shards]
        for shard, found in zip(shards, await asyncio.gather(*lookups), strict=True):
            for index, vector in zip(indices[shard], found, strict=True):
                results[index] = vector
        return results

    def store(self, vectors: Mapping[bytes, tuple[int, bytes, bool]]) -> None:
        """Stores vectors soon: see `VectorCache.store`."""
        parts: defaultdict[int, dict[bytes, tuple[int, bytes, bool]]] = defaultdict(dict)
        for key, vector in vectors.items():
            parts[self._shard_of(key)][key] = vector
        for shard, part in parts.items():
            if not self._is_down(shard):
                self._caches[shard].store(part)

    def _shard_of(self, key: bytes) -> int:
        return rendezvous_order(key, len(self._caches))[0]
