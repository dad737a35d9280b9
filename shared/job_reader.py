"""Reads the newest jobs of a queue from a shard: for `redbatch jobs` and for the console of a gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shared import jobs
from shared.connection import RedisConnection
from shared.job_ids import format_shard_name
from shared.jobs import Job
from shared.keys import Keys


class JobsOfShard(NamedTuple):
    """The newest jobs, each with the name of its shard; the number of all that may be shown, and of those hidden."""

    newest: list[tuple[str, Job]]
    num_all: int
    num_hidden: int


async def read_jobs(
    connection: RedisConnection, keys: Keys, shard: int, limit: int, *, show_all: bool = False
) -> JobsOfShard:
    """Returns the newest `limit` jobs of a queue on a shard; those that are deleted are hidden unless `show_all`.

    Raises RedisUnreachableError.
    """
    found = await jobs.all_statuses(connection, keys)
    ids = [job_id for job_id, status in found.items() if show_all or status != "deleted"]
    some = await jobs.find_all(connection, keys, ids[:limit])
    name = format_shard_name(keys.queue, shard)
    return JobsOfShard([(name, job) for job in some if job], len(ids), len(found) - len(ids))


def newest_first(shards: Iterable[JobsOfShard], limit: int) -> list[tuple[str, Job]]:
    """Returns the newest `limit` jobs of all shards."""
    every = (job for each in shards for job in each.newest)
    return sorted(every, key=lambda job: job[1].created_ms, reverse=True)[:limit]
