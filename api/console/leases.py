"""Who holds shared GPUs and who waits for one, for any number of viewers: one read of Redis is for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import orjson

from api.console.shard_reads import read_in_time
from api.console.shared_reading import SharedReading
from shared.gpu_pools import PoolMember, pool_as_dict, read_pools
from shared.redis_errors import NotPermittedError
from shared.shard_connections import ShardConnection

FRESH_S = 1.0
"""A report that is younger than this is returned again."""

NOT_PERMITTED = "The Redis user of this gateway may not read leases: load a new file of users (docs/redis.md)."


class LeaseReport(SharedReading):
    """Reads leases from the Redis of the first shard, which has all of them; not if no worker uses any.

    Args:
        shards: connections to each Redis.
        members: returns the live workers of all queues.
    """

    def __init__(self, shards: Sequence[ShardConnection], members: Callable[[], Iterable[PoolMember]]) -> None:
        self._shards, self._members = shards, members
        super().__init__(self._read, FRESH_S)

    async def _read(self) -> str:
        try:
            pools = await read_in_time(lambda shard: read_pools(shard.connection, self._members()), self._shards[0])
        except NotPermittedError:
            return orjson.dumps({"problem": NOT_PERMITTED, "pools": []}).decode()
        return orjson.dumps({"problem": None, "pools": list(map(pool_as_dict, pools))}).decode()
