"""The state of all queues that a gateway serves, for any number of viewers: one read of Redis is for all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from api.console.shard_reads import describe_problems, read_in_time
from api.console.shared_reading import SharedReading
from shared.queue_reader import merge_views, read_views
from shared.queue_view import SILENT_S, QueueView, queue_as_dict
from shared.shard_connections import ShardConnection, try_shards

FRESH_S = 1.0
"""A state that is younger than this is returned again."""


class QueueStates(SharedReading):
    """Reads the state of queues from Redis, once for all viewers.

    Args:
        shards: connections to the Redis of each shard.
        names: returns the queues to read.
        clock: monotonic, s.
    """

    def __init__(
        self,
        shards: Sequence[ShardConnection],
        names: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shards, self._names = shards, names
        super().__init__(self._read, FRESH_S, clock)

    async def _read(self) -> str:
        names = self._names()
        views, errors = await try_shards(self._shards, partial(read_in_time, partial(read_views, names)))
        problems = {number: error.log_message for number, error in errors.items()}
        return await asyncio.to_thread(_encode_state, names, self._shards, views, problems)  # may take seconds


def _encode_state(
    names: Sequence[str],
    shards: Sequence[ShardConnection],
    views: Mapping[int, Sequence[QueueView]],
    problems: Mapping[int, str],
) -> str:
    """Returns the state as JSON."""
    queues = merge_views(names, shards, views, problems) if views else []
    state = {
        "silent_after_s": SILENT_S,
        "problems": describe_problems(shards, problems),
    }
    # One by one, as the encoder lets no other thread run. orjson would refuse integers of more than 64 bits.
    as_json = ", ".join(json.dumps(queue_as_dict(each), allow_nan=False) for each in queues)
    return f'{json.dumps(state)[:-1]}, "queues": [{as_json}]}}'
