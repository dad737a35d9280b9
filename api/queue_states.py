"""The state of all queues that a gateway serves, for any number of viewers: one read of Redis is for all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from api.shard_reads import describe_problems, read_in_time
from shared.process.tasks import cancel_and_wait
from shared.queue_reader import merge_views, read_views
from shared.queue_view import SILENT_S, QueueView, queue_as_dict
from shared.shard_connections import ShardConnection, try_shards

FRESH_S = 1.0
"""A state that is younger than this is returned again."""


class QueueStatesReading(NamedTuple):
    """What one read of Redis returned: JSON without the opening brace, and when it began."""

    rest_of_json: str
    began: float


class QueueStates:
    """Reads the state of queues from Redis at most once in FRESH_S, and one read at a time.

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
        self._shards, self._names, self._clock = shards, names, clock
        self._reading: asyncio.Task[QueueStatesReading] | None = None
        self._began = -inf

    async def as_json(self) -> bytes:
        """Returns the state of all queues as JSON, with its age; also while Redis, or a shard, does not answer."""
        if self._reading is None or self._is_over(self._reading):
            self._began = self._clock()
            self._reading = asyncio.create_task(self._read(), name="queue states")
        reading = await asyncio.shield(self._reading)  # a viewer that leaves does not end it for others
        age_s = round(self._clock() - reading.began, 3)
        return f'{{"age_s": {age_s}, {reading.rest_of_json}'.encode()

    async def stop(self) -> None:
        """Ends a read that is under way."""
        await cancel_and_wait([] if self._reading is None else [self._reading])

    def _is_over(self, reading: asyncio.Task[QueueStatesReading]) -> bool:
        """Whether a read has ended, and its state is not fresh any more."""
        return reading.done() and self._clock() - self._began >= FRESH_S

    async def _read(self) -> QueueStatesReading:
        began, names = self._clock(), self._names()
        views, errors = await try_shards(self._shards, partial(read_in_time, partial(read_views, names)))
        problems = {number: error.log_message for number, error in errors.items()}
        state = partial(_encode_state, names, self._shards, views, problems)
        return QueueStatesReading(await asyncio.to_thread(state), began)  # a large one takes seconds


def _encode_state(
    names: Sequence[str],
    shards: Sequence[ShardConnection],
    views: Mapping[int, Sequence[QueueView]],
    problems: Mapping[int, str],
) -> str:
    """Returns the state as JSON without the opening brace."""
    queues = merge_views(names, shards, views, problems) if views else []
    state = {
        "silent_after_s": SILENT_S,
        "problems": describe_problems(shards, problems),
    }
    # One by one, as the encoder lets no other thread run. orjson would refuse integers of more than 64 bits.
    as_json = ", ".join(json.dumps(queue_as_dict(each), allow_nan=False) for each in queues)
    return f'{json.dumps(state)[1:-1]}, "queues": [{as_json}]}}'
