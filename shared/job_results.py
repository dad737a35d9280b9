"""Reads the results of jobs: the replies to their inputs, and the errors of those that failed."""

from __future__ import annotations

from collections.abc import Sequence

from shared.codec import CodecError, decode_reply
from shared.connection import RedisConnection
from shared.jobs import Job
from shared.keys import Keys
from shared.messages import Failure, Reply


async def replies(connection: RedisConnection, keys: Keys, job: Job, start: int, stop: int) -> list[Reply]:
    """Returns the replies to a job's inputs from `start` up to `stop`, in order, as far as there are any.

    The first and the last may hold inputs outside this range. An unreadable reply counts as missing.
    """
    first = start // job.per_entry * job.per_entry
    heads = range(first, min(stop, job.n), job.per_entry)
    found = await _replies_at(connection, keys, job.job_id, heads)
    split_positions = [
        position
        for head in heads
        if (reply := found.get(head)) is None or reply.n < min(job.per_entry, job.n - head)
        for position in range(head + 1, min(head + job.per_entry, job.n))
    ]
    if split_positions:
        found |= await _replies_at(connection, keys, job.job_id, split_positions)
    return [found[at] for at in sorted(found) if at < stop and at + found[at].n > start]


async def failures(connection: RedisConnection, keys: Keys, job_id: str, limit: int) -> list[Failure]:
    """Returns the errors of the first `limit` inputs that failed, sorted by position."""
    positions = await connection.call("LRANGE", f"{keys.job(job_id)}:failed", 0, limit - 1)
    found = await _replies_at(connection, keys, job_id, sorted(map(int, positions)))
    return [each for each in found.values() if isinstance(each, Failure)]


async def _replies_at(
    connection: RedisConnection, keys: Keys, job_id: str, positions: Sequence[int]
) -> dict[int, Reply]:
    if not positions:
        return {}
    raws = await connection.call("HMGET", f"{keys.job(job_id)}:out", *positions)
    found = {}
    for position, raw in zip(positions, raws, strict=True):
        if raw is not None:
            try:
                found[position] = decode_reply(raw)
            except CodecError:
                continue
    return found
