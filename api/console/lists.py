"""Dead letters and jobs of a queue, for any number of viewers of the console: one read of Redis is for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from api.console.shard_reads import describe_problems, read_in_time
from api.console.shared_reading import KeyedReading
from shared import dead_letter_reader, job_reader
from shared.dead_letter_reader import read_letters
from shared.dead_letter_view import letter_as_dict
from shared.job_reader import read_jobs
from shared.job_view import job_as_dict
from shared.shard_connections import ShardConnection, ShardReplies, try_shards

FRESH_S = 1.0
"""A list that is younger than this is returned again."""

MAX_LISTED = 50
"""Dead letters, or jobs, of a queue that are listed: the newest."""

MAX_LISTS = 8
"""Lists that are kept for further viewers, beside those that are being read."""

AnswerT = TypeVar("AnswerT")
Rows = dict[str, Any]


class QueueLists:
    """Lists dead letters and jobs: each list is read at most once in FRESH_S, and one list at a time.

    Args:
        shards: connections to the Redis of each shard.
        clock: monotonic, s.
    """

    def __init__(self, shards: Sequence[ShardConnection], clock: Callable[[], float] = time.monotonic) -> None:
        self._shards = shards
        self._lists = KeyedReading(self._read, FRESH_S, MAX_LISTS, clock)
        self._lock = asyncio.Lock()

    async def letters(self, queue: str) -> Rows:
        """Returns the newest MAX_LISTED dead letters, without texts; which shards did not answer; and how many are.

        The total is None if no shard answers.
        """
        return (await self._lists.get(("letters", queue)))[0]

    async def jobs(self, queue: str) -> Rows:
        """Returns the newest MAX_LISTED jobs as `letters` does; those that were deleted are only counted."""
        return (await self._lists.get(("jobs", queue)))[0]

    def forget(self, queue: str) -> None:
        """Has the lists of a queue read again, as it was changed."""
        for kind in ("letters", "jobs"):
            self._lists.forget((kind, queue))

    async def stop(self) -> None:
        """Ends the reads that are under way."""
        await self._lists.stop()

    async def _read(self, key: tuple[str, str]) -> Rows:
        kind, queue = key
        async with self._lock:  # as all shards answer at once
            return await (self._read_letters(queue) if kind == "letters" else self._read_jobs(queue))

    async def _ask(self, ask: Callable[[ShardConnection], Awaitable[AnswerT]]) -> tuple[ShardReplies[AnswerT], Rows]:
        replies = await try_shards(self._shards, partial(read_in_time, ask))
        problems = {number: error.log_message for number, error in replies.errors.items()}
        return replies, {"problems": describe_problems(self._shards, problems)}

    async def _read_letters(self, queue: str) -> Rows:
        replies, rows = await self._ask(lambda shard: read_letters(shard, shard.connection.keys_of(queue), MAX_LISTED))
        now_ms, found = time.time() * 1000, replies.answers.values()
        letters = dead_letter_reader.newest_first(found, MAX_LISTED)
        listed = [letter_as_dict(each) | {"age_s": _age_s(now_ms, each.died_ms)} for each in letters]
        return {"total": sum(each.total for each in found) if found else None, **rows, "letters": listed}

    async def _read_jobs(self, queue: str) -> Rows:
        replies, rows = await self._ask(
            lambda shard: read_jobs(shard.connection, shard.connection.keys_of(queue), shard.number, MAX_LISTED)
        )
        now_ms, found = time.time() * 1000, replies.answers.values()
        listed = [
            job_as_dict(name, job) | {"age_s": _age_s(now_ms, job.created_ms)}
            for name, job in job_reader.newest_first(found, MAX_LISTED)
        ]
        counts = {
            "total": sum(each.num_all for each in found) if found else None,
            "deleted": sum(each.num_hidden for each in found) if found else None,
        }
        return {**counts, **rows, "jobs": listed}


def _age_s(now_ms: float, since_ms: int) -> float:
    return round(max(0.0, now_ms - since_ms) / 1000, 1)
