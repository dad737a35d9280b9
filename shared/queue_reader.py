"""Reads the state of queues from all shards: for `redbatch queue` and for the console of a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.connection import RedisConnection
from shared.keys import Keys
from shared.producer import queue_stats
from shared.queue_view import QueueView, ShardView, merge_shards
from shared.shard_connections import ShardConnection


async def read_views(names: Sequence[str], shard: ShardConnection) -> list[QueueView]:
    """Returns the state of queues on one shard, in the order of their names. Raises RedisUnreachableError."""
    connection = shard.connection
    return [
        QueueView(
            name,
            await queue_stats(connection, connection.keys_of(name)),
            await last_heartbeats(connection, connection.keys_of(name)),
        )
        for name in names
    ]


def merge_views(
    names: Sequence[str],
    shards: Sequence[ShardConnection],
    views: Mapping[int, Sequence[QueueView]],
    problems: Mapping[int, str],
) -> list[QueueView]:
    """Returns the state of queues over all shards, at least one of which has answered.

    `views` are what `read_views` returned, and `problems` why a shard did not answer, by the number of the shard.
    """
    if len(shards) == 1:
        return list(views[shards[0].number])
    return [
        merge_shards(
            name,
            [
                ShardView(
                    each.place,
                    views[each.number][index] if each.number in views else None,
                    problems.get(each.number, ""),
                )
                for each in shards
            ],
        )
        for index, name in enumerate(names)
    ]


async def last_heartbeats(connection: RedisConnection, keys: Keys) -> dict[str, int]:
    """Returns when each worker sent its last heartbeat, by Redis' clock (ms): also workers that are gone."""
    rows = iter(await connection.call("ZRANGE", keys.workers, 0, -1, "WITHSCORES"))
    beats = zip(rows, rows, strict=True)
    return {name.decode("utf-8", "replace"): int(float(score)) for name, score in beats if b"inf" not in score}
